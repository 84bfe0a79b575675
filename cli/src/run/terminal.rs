//! The terminal: which process group is in its foreground, and so gets its input and its ^C.

use std::fs::File;
use std::io::{self, IsTerminal};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

use crate::interruption::not_ignored;

pub struct Terminal {
    tty: File,
    /// Our group.
    ours: Pid,
}

impl Terminal {
    /// That of this process, where it has one. A script that starts it with `&` goes on in the
    /// foreground, in the same group: such a shell has what it starts ignore ^C, and gives it no
    /// input.
    pub fn open() -> Option<Self> {
        let ignores_interrupts = not_ignored([Signal::SIGINT]).next().is_none();
        if ignores_interrupts && !io::stdin().is_terminal() {
            return None;
        }
        let tty = File::options().read(true).write(true).open("/dev/tty").ok()?;
        Some(Self { tty, ours: getpgrp() })
    }

    /// Puts that group where ours is now. Answers whether that one is in the foreground then.
    pub fn give_to(&self, group: Pid) -> bool {
        self.pass(self.ours, group)
    }

    /// Puts our group where that one is now. Answers whether ours is in the foreground then.
    pub fn take_from(&self, group: Pid) -> bool {
        self.pass(group, self.ours)
    }

    fn pass(&self, from: Pid, to: Pid) -> bool {
        let foreground = tcgetpgrp(&self.tty);
        if foreground != Ok(from) {
            return foreground == Ok(to);
        }
        // A group in the background would be stopped for this.
        let stop: SigSet = [Signal::SIGTTOU].into_iter().collect();
        let Ok(mask) = stop.thread_swap_mask(SigmaskHow::SIG_BLOCK) else {
            return false;
        };
        let is_passed = tcsetpgrp(&self.tty, to).is_ok();
        mask.thread_set_mask().expect("it was the mask before");
        is_passed
    }
}
