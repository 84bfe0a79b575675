//! The terminal: which process group is in its foreground, and so gets its input and ^C.

use std::fs::File;
use std::io::{self, IsTerminal};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

use crate::interruption::not_ignored;

pub struct Terminal {
    tty: File,
    /// The group of this process.
    ours: Pid,
    /// The settings before the command started.
    settings: Option<Termios>,
}

impl Terminal {
    /// Opens the terminal of this process, if it has a terminal. If a script starts this process
    /// with `&`, both are in the same group, which may be in the foreground. The script's shell
    /// makes this process ignore ^C and gives it no input, so this process must not take the
    /// terminal.
    pub fn open() -> Option<Self> {
        let ignores_interrupts = not_ignored([Signal::SIGINT]).next().is_none();
        if ignores_interrupts && !io::stdin().is_terminal() {
            return None;
        }
        let tty = File::options().read(true).write(true).open("/dev/tty").ok()?;
        let settings = tcgetattr(&tty).ok();
        Some(Self { tty, ours: getpgrp(), settings })
    }

    /// Restores the settings. A command that was killed in raw mode has not restored them. A shell
    /// would not restore them either, because this process exits normally.
    pub fn restore(&self) {
        if let Some(settings) = &self.settings {
            let _ = tcsetattr(&self.tty, SetArg::TCSADRAIN, settings);
        }
    }

    /// Moves the given group to the foreground, if our group is in the foreground. Returns whether
    /// the given group is in the foreground now.
    pub fn give_to(&self, group: Pid) -> bool {
        self.pass(self.ours, group)
    }

    /// Moves our group to the foreground, if the given group is in the foreground. Returns whether
    /// our group is in the foreground now.
    pub fn take_from(&self, group: Pid) -> bool {
        self.pass(group, self.ours)
    }

    fn pass(&self, from: Pid, to: Pid) -> bool {
        let foreground = tcgetpgrp(&self.tty);
        if foreground != Ok(from) {
            return foreground == Ok(to);
        }
        // The system would stop a background group that changes the foreground.
        let stop: SigSet = [Signal::SIGTTOU].into_iter().collect();
        let Ok(mask) = stop.thread_swap_mask(SigmaskHow::SIG_BLOCK) else {
            return false;
        };
        let is_passed = tcsetpgrp(&self.tty, to).is_ok();
        mask.thread_set_mask().expect("the earlier mask is valid");
        is_passed
    }
}
