//! Signals that ask this process to end.

use std::{fs, io};

use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::failure::Failure;

/// Catches SIGINT, SIGTERM and SIGHUP, except those that this process was started to ignore.
pub fn interruptions() -> Result<mpsc::UnboundedReceiver<Signal>, Failure> {
    let asks = not_ignored([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    listen(asks).map_err(Failure::system("cannot install signal handlers"))
}

/// Returns a future that completes with the number of the first signal that asks this process to
/// end.
pub fn interruption() -> Result<impl Future<Output = u8>, Failure> {
    let mut asked = interruptions()?;
    Ok(async move {
        match asked.recv().await {
            Some(signal) => signal as u8,
            None => std::future::pending().await,
        }
    })
}

/// Returns a receiver of these signals. From now on, none of the signals ends this process.
pub fn listen(
    signals: impl Iterator<Item = Signal>,
) -> io::Result<mpsc::UnboundedReceiver<Signal>> {
    let (sender, received) = mpsc::unbounded_channel();
    for number in signals {
        let mut stream = signal(SignalKind::from_raw(number as i32))?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() && sender.send(number).is_ok() {}
        });
    }
    Ok(received)
}

/// Returns the signals without those that this process was started to ignore, for example by nohup.
/// With a handler, such a signal would no longer be ignored.
pub fn not_ignored<const N: usize>(signals: [Signal; N]) -> impl Iterator<Item = Signal> {
    let ignored = ignored();
    signals.into_iter().filter(move |signal| ignored & (1 << (*signal as u32 - 1)) == 0)
}

/// Returns the ignored signals as a mask. Without /proc, the mask is 0.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}
