//! The command: a child of this process, with a process group of its own.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::iter;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use redis_semaphore::Permit;
use rustix::process::{
    Pid as Process, WaitId, WaitIdOptions, WaitOptions, WaitStatus, wait, waitid,
};

use super::job;
use super::options::Run;
use crate::failure::Failure;
use crate::role;

/// How often to look whether the group of a command that ends is gone.
pub const SHORT_PAUSE: Duration = Duration::from_millis(10);

const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

fn command(program: &OsStr, arguments: &[OsString], asked: &Run, permit: &Permit) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("REDIS_SEMAPHORE_NAME", &asked.name)
        .env("REDIS_SEMAPHORE_ID", permit.id())
        .env("REDIS_SEMAPHORE_TOKEN", permit.fencing_token().to_string())
        .process_group(0);
    command
}

pub fn not_started(program: &OsStr, error: &io::Error) -> Failure {
    let status = match error.kind() {
        ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    };
    match program.is_empty() {
        true => Failure::new(status, "the command is an empty text"),
        // A shell would run it; a system wants to know by what.
        false if error.raw_os_error() == Some(Errno::ENOEXEC as i32) => Failure::new(
            status,
            format!("{}: {error}: does a script begin with #!?", program.display()),
        ),
        false => Failure::new(status, format!("{}: {error}", program.display())),
    }
}

/// The command since it was started.
#[derive(Clone, Copy)]
pub struct Running {
    /// Its process, and so its group.
    pub group: Pid,
}

pub enum Change {
    Ended(Ended),
    /// By this signal.
    Stopped(i32),
    Continued,
    /// Another child has ended.
    Other(Pid),
}

#[derive(Debug, Clone, Copy)]
pub enum Ended {
    Exited(u8),
    Killed(i32),
}

impl Ended {
    pub fn is_interrupt(self) -> bool {
        matches!(self, Self::Killed(signal) if signal == Signal::SIGINT as i32)
    }

    /// As shells have it.
    pub fn status(self) -> u8 {
        match self {
            Self::Exited(status) => status,
            Self::Killed(signal) => 128 + signal as u8,
        }
    }
}

impl Running {
    /// A process that becomes the command when it is continued: see `starter.rs`.
    pub fn prepare(asked: &Run, permit: &Permit) -> Result<Self, Failure> {
        let failed = Failure::system("the command cannot be prepared");
        let role = format!("{} {}", role::STARTER, std::process::id());
        let mut starter = command(role::THIS_PROGRAM.as_ref(), &asked.command, asked, permit);
        let id = starter.env(role::VARIABLE, role).spawn().map_err(failed)?.id() as i32;
        let process = WaitId::Pid(Process::from_raw(id).expect("it has one"));
        let changed = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        // Unless it has ended, which is heard of later, nobody is to hear that it is stopped.
        if let Ok(Some(status)) = waitid(process.clone(), changed)
            && status.stopped()
        {
            let _ = waitid(process, WaitIdOptions::STOPPED);
        }
        Ok(Self { group: Pid::from_raw(id) })
    }

    /// Nobody guards it.
    pub fn start(asked: &Run, permit: &Permit) -> Result<Self, Failure> {
        let (program, arguments) = asked.command.split_first().expect("clap wants a command");
        let spawned = command(program, arguments, asked, permit).spawn();
        let child = spawned.map_err(|error| not_started(program, &error))?;
        Ok(Self { group: Pid::from_raw(child.id() as i32) })
    }

    /// To all of its group.
    pub fn signal(&self, signal: Signal) {
        // It may have ended, or be out of reach.
        let _ = killpg(self.group, signal);
    }

    /// Has it end, be it stopped or not.
    pub fn terminate(&self) {
        self.signal(Signal::SIGTERM);
        self.signal(Signal::SIGCONT);
    }

    /// Whether anybody is left of its group.
    pub fn has_group(&self) -> bool {
        killpg(self.group, None) != Err(Errno::ESRCH)
    }

    /// Whether all that is left of its group belongs to other users, as with sudo: it gets no signal.
    pub fn is_out_of_reach(&self) -> bool {
        killpg(self.group, None) == Err(Errno::EPERM)
    }

    /// As Linux tells it, of the first of its group.
    pub fn is_stopped(&self) -> bool {
        job::stat(self.group).is_some_and(|[state, _]| state == "T")
    }

    /// What became of the command since the last call. Other children are picked up, too: the guard,
    /// and those that a first process of a container inherits.
    pub fn changes(&self) -> Vec<Change> {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
        let mut changes = Vec::new();
        while let Ok(Some((child, status))) = wait(options) {
            match child.as_raw_pid() {
                child if child == self.group.as_raw() => changes.extend(read(status)),
                child if status.exited() || status.signaled() => {
                    changes.push(Change::Other(Pid::from_raw(child)));
                }
                _ => {}
            }
        }
        changes
    }
}

/// Picks them up, while there is no command.
pub fn ended_children() -> impl Iterator<Item = Pid> {
    let next = || wait(WaitOptions::NOHANG).ok().flatten();
    iter::from_fn(next).map(|(child, _)| Pid::from_raw(child.as_raw_pid()))
}

fn read(status: WaitStatus) -> Option<Change> {
    if status.continued() {
        return Some(Change::Continued);
    }
    if let Some(signal) = status.stopping_signal() {
        return Some(Change::Stopped(signal));
    }
    let killed = status.terminating_signal().map(Ended::Killed);
    // A status has eight bits.
    let ended = killed.or(status.exit_status().map(|status| Ended::Exited(status as u8)));
    ended.map(Change::Ended)
}
