//! The command: a child of the guard, or of the CLI if there is no guard. The command runs in its
//! own process group.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::iter;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use redis_semaphore::Permit;
use rustix::process::{
    Pid as Process, WaitId, WaitIdOptions, WaitOptions, WaitStatus, wait, waitid,
};

use super::family;
use super::options::Run;
use crate::failure::{Failure, with_remedy};
use crate::output::note;
use crate::role;

/// The interval between checks whether all processes of an ending command have ended.
pub const SHORT_PAUSE: Duration = Duration::from_millis(10);

/// The environment variable in which the command gets the name of the semaphore.
pub const NAME: &str = "REDIS_SEMAPHORE_NAME";

const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

pub fn not_started(program: &OsStr, error: &io::Error) -> Failure {
    let status = match error.kind() {
        ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    };
    if program.is_empty() {
        return Failure::new(status, "the command is empty: name a program after '--'");
    }
    let name = program.to_string_lossy();
    let is_path = name.contains('/');
    let advice = match error.kind() {
        ErrorKind::NotFound if is_path && Path::new(program).exists() => {
            ": the file exists, but the interpreter of its first line does not (the line may end with \
             CRLF)"
        }
        ErrorKind::NotFound if !is_path || name.contains(char::is_whitespace) => {
            ": to use a shell, write -- sh -c '...'"
        }
        // A shell would run the file as a script. The system cannot run it, because the file names
        // no interpreter.
        _ if error.raw_os_error() == Some(Errno::ENOEXEC as i32) => ": begin a script with #!",
        _ => "",
    };
    Failure::new(status, format!("{}: {}{advice}", program.display(), with_remedy(error)))
}

#[derive(Clone, Copy)]
pub struct Running {
    /// The ID of the command's process, and of the process group.
    pub group: Pid,
}

/// A change in the state of a process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    Ended(Ended),
    /// The process was stopped by this signal.
    Stopped(i32),
    Continued,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Ended {
    Exited(u8),
    Killed(i32),
}

impl Ended {
    /// Returns the end of a command whose guard was killed before it could report the status.
    /// `forwarded` is the signal that the CLI forwarded to the command, and probably ended it.
    pub fn unreported(name: &str, forwarded: Option<Signal>) -> Self {
        let signal = forwarded.unwrap_or_else(|| {
            note(format_args!(
                "semaphore {name}: the guard was killed, so the exit status of the command is \
                 unknown"
            ));
            Signal::SIGKILL
        });
        Self::Killed(signal as i32)
    }

    pub fn is_interrupt(self) -> bool {
        matches!(self, Self::Killed(signal) if signal == Signal::SIGINT as i32)
    }

    /// Returns the status as shells report it.
    pub fn status(self) -> u8 {
        match self {
            Self::Exited(status) => status,
            Self::Killed(signal) => 128 + signal as u8,
        }
    }
}

impl Running {
    /// Starts a command without a guard.
    pub fn start(asked: &Run, permit: &Permit) -> Result<Self, Failure> {
        let (program, arguments) = asked.command.split_first().expect("clap wants a command");
        let mut command = Command::new(program);
        command.args(arguments).env(NAME, &asked.name).process_group(0);
        let spawned = with_permit(&mut command, permit.fencing_token(), permit.id()).spawn();
        let child = spawned.map_err(|error| not_started(program, &error))?;
        Ok(Self { group: Pid::from_raw(child.id() as i32) })
    }

    /// Sends a signal to all processes in the command's group.
    pub fn signal(&self, signal: Signal) {
        // The call fails if the group has ended or belongs to another user.
        let _ = killpg(self.group, signal);
    }

    /// Sends a stop signal to those processes of the command's group that catch the signal. The
    /// signal would stop the other processes, and no shell could continue them. The system, too,
    /// does not stop processes that no shell could continue. Without /proc, sends nothing and
    /// returns `false`.
    pub fn signal_those_that_catch(&self, signal: Signal) -> bool {
        family::of_group(self.group).is_some_and(|members| {
            members.iter().filter(|member| member.catches(signal)).for_each(|it| it.signal(signal));
            true
        })
    }

    /// Sends SIGTERM to the command's group, and continues the group in case it is stopped.
    pub fn terminate(&self) {
        self.signal(Signal::SIGTERM);
        self.signal(Signal::SIGCONT);
    }

    /// Returns whether all processes left in the command's group belong to other users, as with
    /// sudo. This process cannot send signals to them.
    pub fn is_out_of_reach(&self) -> bool {
        killpg(self.group, None) == Err(Errno::EPERM)
    }

    /// Returns whether the command's group has no process left, not even a zombie.
    pub fn is_gone(&self) -> bool {
        killpg(self.group, None) == Err(Errno::ESRCH)
    }
}

/// Starts a child of the guard. When SIGCONT continues the child, the child becomes the command:
/// see `starter.rs`. The environment already contains the name of the semaphore.
pub fn prepare(command: &[OsString], token: u64, id: &str) -> io::Result<Pid> {
    let mut starter = role::this_program()?;
    starter
        .args(command)
        .env(role::VARIABLE, format!("{} {}", role::STARTER, std::process::id()))
        .process_group(0);
    let id = with_permit(&mut starter, token, id).spawn()?.id() as i32;
    let process = WaitId::Pid(Process::from_raw(id).expect("a process ID is not 0"));
    let changed = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    // Consumes the report that the child has stopped. If the child has ended instead, its end is
    // reported later.
    if let Ok(Some(status)) = waitid(process.clone(), changed)
        && status.stopped()
    {
        let _ = waitid(process, WaitIdOptions::STOPPED);
    }
    Ok(Pid::from_raw(id))
}

fn with_permit<'a>(command: &'a mut Command, token: u64, id: &str) -> &'a mut Command {
    command.env("REDIS_SEMAPHORE_ID", id).env("REDIS_SEMAPHORE_TOKEN", token.to_string())
}

/// Returns the changes of the children of this process since the last call. Reaps all children that
/// have ended, including inherited children, and does not block.
pub fn changes() -> impl Iterator<Item = (Pid, Change)> {
    iter::from_fn(|| next_change(WaitOptions::NOHANG))
}

/// Waits for the next change of a child of this process. Returns `None` if there are no children.
pub fn await_change() -> Option<(Pid, Change)> {
    next_change(WaitOptions::empty())
}

fn next_change(options: WaitOptions) -> Option<(Pid, Change)> {
    let options = options | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
    loop {
        let (child, status) = match wait(options) {
            Ok(changed) => changed?,
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return None,
        };
        if let Some(change) = read(status) {
            return Some((Pid::from_raw(child.as_raw_pid()), change));
        }
    }
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
