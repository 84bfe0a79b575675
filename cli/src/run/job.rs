//! The job of a shell that this process belongs to: all of it stops at ^Z, and goes on with `fg` or
//! `bg`.

use std::os::unix::process::parent_id;

use nix::sys::signal::{Signal, kill, raise};
use nix::unistd::{Pid, getpgid, getpgrp, getsid};

use super::family::Entry;
use crate::interruption::not_ignored;

/// As the terminal would do it. This process, which listens to SIGTSTP, hears of it as the others
/// do.
pub fn stop_all() {
    // To its own group a process may always send a signal.
    let _ = kill(Pid::from_raw(0), Signal::SIGTSTP);
}

/// A script that runs this tool would go on after ^C. It is heard of here, too.
pub fn interrupt_all() {
    let _ = kill(Pid::from_raw(0), Signal::SIGINT);
}

/// What SIGTSTP does to a process that does not listen to it. Returns when this one goes on, and
/// whether it was stopped: then a SIGCONT has come.
pub fn stop_this_process() -> bool {
    can_stop() && raise(Signal::SIGSTOP).is_ok()
}

/// Whether SIGTSTP stops this process: not where no shell could have it go on, or it would not hear
/// of that.
pub fn can_stop() -> bool {
    not_ignored([Signal::SIGTSTP, Signal::SIGCONT]).count() == 2 && has_shell()
}

/// Looks for the shell among the ancestors: it is the first of another group, in the same session.
fn has_shell() -> bool {
    let group = getpgrp();
    let mut ancestor = Some(Pid::from_raw(parent_id() as i32));
    while let Some(member) = ancestor.filter(|ancestor| getpgid(Some(*ancestor)) == Ok(group)) {
        ancestor = parent(member);
    }
    ancestor.is_some_and(|shell| getsid(Some(shell)) == getsid(None))
}

fn parent(process: Pid) -> Option<Pid> {
    Entry::read(process).map(|(entry, _)| entry.parent)
}
