//! What a process is that this program has started as a part of itself: users cannot ask for that,
//! so it is no option.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

use rustix::param::linux_execfn;

/// By its own path there may be another program meanwhile, or none: an upgrade does not wait for
/// those that run.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Is in the environment of such a process.
pub const VARIABLE: &str = "REDIS_SEMAPHORE_ROLE";

/// A role, with what follows it.
pub const GUARD: &str = "guard";
pub const STARTER: &str = "starter";

/// This program once more.
pub fn this_program() -> io::Result<Command> {
    let Ok(line) = fs::read("/proc/self/cmdline") else {
        return without_proc();
    };
    let mut command = Command::new(THIS_PROGRAM);
    // Started as `ld.so OPTIONS PROGRAM`, that is the loader: it wants its options and the program.
    let words = line.iter().filter(|byte| **byte == 0).count();
    let of_loader = words.saturating_sub(env::args_os().count());
    let words = line.split(|byte| *byte == 0).skip(1).map(OsStr::from_bytes);
    command.args(words.take(of_loader));
    Ok(command)
}

/// By the path with which the system, or the loader that it started, did so.
fn without_proc() -> io::Result<Command> {
    let started = PathBuf::from(OsStr::from_bytes(linux_execfn().to_bytes()));
    let is_loader = started
        .file_name()
        .is_some_and(|name| name == "ld.so" || name.as_bytes().starts_with(b"ld-"));
    let path = match env::args_os().next().filter(|_| is_loader) {
        Some(program) => PathBuf::from(program),
        None => started,
    };
    // A name alone would be looked for in PATH.
    let path = if path.components().count() == 1 { PathBuf::from(".").join(path) } else { path };
    if !path.exists() {
        return Err(io::Error::other(format!(
            "there is no /proc, and this program is not at {} any more",
            path.display()
        )));
    }
    Ok(Command::new(path))
}

pub fn of_this_process() -> Option<String> {
    std::env::var(VARIABLE).ok()
}
