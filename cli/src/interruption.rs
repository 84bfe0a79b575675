//! Signals from outside: which count, and the end by one.

use std::{fs, io};

use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::failure::Failure;

/// The signals that ask this program to end.
pub fn interruptions() -> Result<mpsc::UnboundedReceiver<Signal>, Failure> {
    let asks = not_ignored([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    listen(asks).map_err(Failure::system("signals cannot be listened to"))
}

/// Ends with the number of the first of them.
pub fn interruption() -> Result<impl Future<Output = u8>, Failure> {
    let mut asked = interruptions()?;
    Ok(async move {
        match asked.recv().await {
            Some(signal) => signal as u8,
            None => std::future::pending().await,
        }
    })
}

/// From here on none of them ends this process.
pub fn listen(
    signals: impl Iterator<Item = Signal>,
) -> io::Result<mpsc::UnboundedReceiver<Signal>> {
    let (sender, heard) = mpsc::unbounded_channel();
    for number in signals {
        let mut stream = signal(SignalKind::from_raw(number as i32))?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() && sender.send(number).is_ok() {}
        });
    }
    Ok(heard)
}

/// Without those that whoever started this process had it ignore, as nohup does: a handler would
/// undo that.
pub fn not_ignored<const N: usize>(signals: [Signal; N]) -> impl Iterator<Item = Signal> {
    let ignored = ignored();
    signals.into_iter().filter(move |signal| ignored & (1 << (*signal as u32 - 1)) == 0)
}

/// As a mask. None where the system has no such file.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}
