//! Roles of processes that this program starts as parts of itself. Roles are not options, because
//! users must not choose a role.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

use rustix::param::linux_execfn;

/// The path of this program. After an upgrade, the original path may no longer exist, or may lead
/// to another program.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// The environment variable that contains the role of a process.
pub const VARIABLE: &str = "REDIS_SEMAPHORE_ROLE";

/// The roles of `run`. In the variable, an argument follows the role.
pub const GUARD: &str = "guard";
pub const STARTER: &str = "starter";

/// Returns a command that starts this program again.
pub fn this_program() -> io::Result<Command> {
    let Ok(line) = fs::read("/proc/self/cmdline") else {
        return without_proc();
    };
    let mut command = Command::new(THIS_PROGRAM);
    // In a process that was started as `ld.so OPTIONS PROGRAM`, `/proc/self/exe` is the loader. The
    // loader needs its options and the program.
    let words = line.iter().filter(|byte| **byte == 0).count();
    let of_loader = words.saturating_sub(env::args_os().count());
    let words = line.split(|byte| *byte == 0).skip(1).map(OsStr::from_bytes);
    command.args(words.take(of_loader));
    Ok(command)
}

/// Returns a command with the path by which the system or the loader started this program.
fn without_proc() -> io::Result<Command> {
    let started = PathBuf::from(OsStr::from_bytes(linux_execfn().to_bytes()));
    let is_loader = started
        .file_name()
        .is_some_and(|name| name == "ld.so" || name.as_bytes().starts_with(b"ld-"));
    let path = match env::args_os().next().filter(|_| is_loader) {
        Some(program) => PathBuf::from(program),
        None => started,
    };
    // The system would search PATH for a plain name.
    let path = if path.components().count() == 1 { PathBuf::from(".").join(path) } else { path };
    if !path.exists() {
        return Err(io::Error::other(format!(
            "/proc is not mounted, and this program is no longer at {}: mount /proc, or restore \
             the program",
            path.display()
        )));
    }
    Ok(Command::new(path))
}

pub fn of_this_process() -> Option<String> {
    std::env::var(VARIABLE).ok()
}
