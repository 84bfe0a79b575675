//! Catches signals to this process, and ends this process by a signal.

use std::io;
use std::process::ExitCode;

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::getpid;
use signal_hook::low_level::emulate_default_handler;
use tokio::sync::mpsc;

use super::job::stop_this_process;
use crate::interruption::{listen, not_ignored};

/// Signals that are forwarded to the command: all that can be caught, with these exceptions.
/// SIGCHLD is about the children of this process. SIGPIPE and SIGXFSZ are about its output. SIGBUS,
/// SIGFPE, SIGILL, SIGSEGV and SIGSYS report its own faults. A real-time signal may carry a value,
/// which cannot be forwarded.
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
    received: mpsc::UnboundedReceiver<Signal>,
}

impl Signals {
    /// Catches the signals. From now on, none of them ends or stops this process. A signal that
    /// this process was started to ignore stays ignored, by the command as well.
    pub fn listen() -> io::Result<Self> {
        let caught = || not_ignored(FOR_COMMAND).chain([Signal::SIGCHLD]);
        // This process may have been started with signals blocked.
        SigSet::from_iter(caught()).thread_unblock()?;
        let received = listen(caught())?;
        Ok(Self { received })
    }

    pub async fn next(&mut self) -> Signal {
        self.received.recv().await.expect("the signal tasks run as long as the runtime")
    }

    /// Returns the next signal that would end a process without handlers. A signal that would stop
    /// such a process stops this process. Calls `on_child` when a child may have ended.
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

/// Ends this process by a signal. After SIGINT, a shell that waits for this process ends its loop.
pub fn die_of(signal: Signal) -> ExitCode {
    // By default, signals do not end the first process of a container.
    if getpid().as_raw() != 1 {
        let _ = emulate_default_handler(signal as i32);
    }
    ExitCode::from(128 + signal as u8)
}
