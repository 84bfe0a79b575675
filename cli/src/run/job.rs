//! The shell job to which this process belongs. ^Z stops the whole job, and `fg` or `bg` continues
//! it.

use std::os::unix::process::parent_id;

use nix::sys::signal::{Signal, kill, raise};
use nix::unistd::{Pid, getpgid, getpgrp, getsid};

use super::family::Entry;
use crate::interruption::not_ignored;

/// Stops the whole job with SIGTSTP, as the terminal would. This process catches SIGTSTP, and gets
/// it as well.
pub fn stop_all() {
    // A process may always send a signal to its own group.
    let _ = kill(Pid::from_raw(0), Signal::SIGTSTP);
}

/// Interrupts the whole job. A script that runs this CLI would otherwise continue after ^C. This
/// process gets the signal as well.
pub fn interrupt_all() {
    let _ = kill(Pid::from_raw(0), Signal::SIGINT);
}

/// Stops this process, as SIGTSTP would stop a process without a handler. Returns `true` if this
/// process was stopped. SIGCONT has then already continued it.
pub fn stop_this_process() -> bool {
    can_stop() && raise(Signal::SIGSTOP).is_ok()
}

/// Returns whether this process must stop when it gets SIGTSTP. The result is `false` if no shell
/// could continue this process, or if this process ignores SIGTSTP or SIGCONT.
pub fn can_stop() -> bool {
    not_ignored([Signal::SIGTSTP, Signal::SIGCONT]).count() == 2 && has_shell()
}

/// Looks for a shell among the ancestors: the first ancestor in another group of the same session.
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
