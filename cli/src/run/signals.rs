//! Signals to this process: which it hears of, and how it dies of one.

use std::io;
use std::process::ExitCode;

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::getpid;
use signal_hook::low_level::emulate_default_handler;
use tokio::sync::mpsc;

use super::job::stop_this_process;
use crate::interruption::{listen, not_ignored};

/// What is meant for the command: all that can be caught, but for what is about this process
/// itself, its children (SIGCHLD), its output (SIGPIPE, SIGXFSZ), or a fault of it (SIGBUS, SIGFPE,
/// SIGILL, SIGSEGV, SIGSYS). Nobody could pass on a real-time signal as it came, with its value,
/// and as often.
const FOR_COMMAND: [Signal; 21] = [
    Signal::SIGABRT,
    Signal::SIGALRM,
    Signal::SIGCONT,
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGIO,
    Signal::SIGPROF,
    Signal::SIGPWR,
    Signal::SIGQUIT,
    Signal::SIGSTKFLT,
    Signal::SIGTERM,
    Signal::SIGTRAP,
    Signal::SIGTSTP,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
    Signal::SIGURG,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGVTALRM,
    Signal::SIGWINCH,
    Signal::SIGXCPU,
];

pub struct Signals {
    heard: mpsc::UnboundedReceiver<Signal>,
}

impl Signals {
    /// From here on none of them ends or stops this process. What it was told to ignore the command
    /// is to ignore, too.
    pub fn listen() -> io::Result<Self> {
        // Whoever started this process may have kept it from hearing of its children.
        SigSet::from_iter([Signal::SIGCHLD]).thread_unblock()?;
        let heard = listen(not_ignored(FOR_COMMAND).chain([Signal::SIGCHLD]))?;
        Ok(Self { heard })
    }

    pub async fn next(&mut self) -> Signal {
        self.heard.recv().await.expect("its tasks end with the runtime")
    }

    /// The next one that would end a process which does not listen. One that would stop it does so.
    /// `on_child` is called when a child may have ended.
    pub async fn next_fatal(&mut self, mut on_child: impl FnMut()) -> Signal {
        loop {
            match self.next().await {
                Signal::SIGCHLD => on_child(),
                Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU => {
                    stop_this_process();
                }
                Signal::SIGCONT | Signal::SIGURG | Signal::SIGWINCH => {}
                fatal => return fatal,
            }
        }
    }
}

/// Ends this process by a signal, so that a shell sees that, and ends its loop.
pub fn die_of(signal: Signal) -> ExitCode {
    // To the first process of a container signals do nothing of themselves.
    if getpid().as_raw() != 1 {
        let _ = emulate_default_handler(signal as i32);
    }
    ExitCode::from(128 + signal as u8)
}
