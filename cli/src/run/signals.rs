//! Signals to this process: which it hears of, and how it dies of one.

use std::fs;
use std::io;
use std::process::ExitCode;

use nix::sys::signal::Signal;
use nix::unistd::getpid;
use signal_hook::low_level::emulate_default_handler;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// What is meant for the command.
const FOR_COMMAND: [Signal; 9] = [
    Signal::SIGALRM,
    Signal::SIGCONT,
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

pub struct Signals {
    heard: mpsc::UnboundedReceiver<Signal>,
}

impl Signals {
    /// From here on none of them ends this process.
    pub fn listen() -> io::Result<Self> {
        let ignored = ignored();
        // As nohup has it: the command is to ignore them, too, which it would not after a handler.
        let listened = FOR_COMMAND.into_iter().filter(|signal| ignored & bit(*signal) == 0);
        let (sender, heard) = mpsc::unbounded_channel();
        for number in listened.chain([Signal::SIGCHLD]) {
            let mut stream = signal(SignalKind::from_raw(number as i32))?;
            let sender = sender.clone();
            tokio::spawn(async move {
                while stream.recv().await.is_some() && sender.send(number).is_ok() {}
            });
        }
        Ok(Self { heard })
    }

    pub async fn next(&mut self) -> Signal {
        self.heard.recv().await.expect("its tasks end with the runtime")
    }

    /// The next one that would end a process which does not listen. `on_child` is called when a child
    /// may have ended.
    pub async fn next_fatal(&mut self, mut on_child: impl FnMut()) -> Signal {
        loop {
            match self.next().await {
                Signal::SIGCHLD => on_child(),
                Signal::SIGCONT | Signal::SIGWINCH => {}
                fatal => return fatal,
            }
        }
    }
}

/// Those that whoever started this process had it ignore, as a mask. None where the system has no
/// such file.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

fn bit(signal: Signal) -> u64 {
    1 << (signal as u32 - 1)
}

/// Ends this process by a signal, so that a shell sees that, and ends its loop.
pub fn die_of(signal: Signal) -> ExitCode {
    // To the first process of a container signals do nothing of themselves.
    if getpid().as_raw() != 1 {
        let _ = emulate_default_handler(signal as i32);
    }
    ExitCode::from(128 + signal as u8)
}
