//! The terminal: which process group is in its foreground, and so gets its input and its ^C.

use std::fs::File;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

pub struct Terminal {
    tty: File,
    /// Our group.
    ours: Pid,
}

impl Terminal {
    /// That of this process, where it has one.
    pub fn open() -> Option<Self> {
        let tty = File::options().read(true).write(true).open("/dev/tty").ok()?;
        Some(Self { tty, ours: getpgrp() })
    }

    /// Puts that group where ours is now. Answers whether it is in the foreground.
    pub fn give_to(&self, group: Pid) -> bool {
        self.pass(self.ours, group)
    }

    /// Puts our group where that one is now.
    pub fn take_from(&self, group: Pid) {
        self.pass(group, self.ours);
    }

    fn pass(&self, from: Pid, to: Pid) -> bool {
        match tcgetpgrp(&self.tty) {
            Ok(foreground) if foreground == to => return true,
            Ok(foreground) if foreground == from => {}
            _ => return false,
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
