//! The guard: the parent of the command, and what ends it where this tool cannot, because it was
//! killed, or is stopped itself. It is a second process of this program. Both processes
//! exchange messages over a socket, which is the guard's input. The socket closes when the tool
//! ends, however that happens.
//!
//! Whatever loses its parent below the guard becomes the guard's child (it is a "subreaper"), so
//! nothing that the command has started gets away from it: not with a process group or a session of
//! its own, and not when the tool is killed. Where the guard is killed the tool inherits all of
//! that, and starts another one.

mod watch;
pub mod words;

use std::future;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use humantime::format_duration;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redis_semaphore::Permit;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::time::timeout;

use super::command::NAME;
use super::options::Run;
use crate::failure::{Failure, SYSTEM};
use crate::output::note;
use crate::role;
use words::{Report, Word, read_report};

pub use watch::watch;

/// For what takes a millisecond.
const PATIENCE: Duration = Duration::from_secs(20);

/// After so many in a row that ended within a second no more are started: they cannot work.
const MOST_HASTY: u32 = 10;

/// A process that was started, before there is a runtime.
pub struct Started {
    asked: Run,
    grace: Duration,
    child: Child,
    socket: UnixStream,
}

/// The guard as the tool knows it.
pub struct Guard {
    started: Started,
    since: Instant,
    /// Others before it that lived for less than a second.
    hasty: u32,
    reports: Option<Lines<BufReader<tokio::net::UnixStream>>>,
}

impl Started {
    pub fn start(asked: Run, grace: Duration) -> io::Result<Self> {
        let (socket, input) = UnixStream::pair()?;
        let mut guard = role::this_program()?;
        let child = guard
            // What `pkill -f` looks at, which is not to find the name of the tool, or the command:
            // see `watch`.
            .arg0("semaphore-guard")
            .env(role::VARIABLE, format!("{} {}", role::GUARD, format_duration(grace)))
            .env(NAME, &asked.name)
            .stdin(Stdio::from(OwnedFd::from(input)))
            // ^C and ^Z are not for the guard.
            .process_group(0)
            .spawn()?;
        watch::pass_command(&socket, &asked.command)?;
        Ok(Self { asked, grace, child, socket })
    }
}

impl Guard {
    /// In a runtime.
    pub fn of(started: Started) -> io::Result<Self> {
        // A tool must not hang where its guard reads nothing.
        started.socket.set_nonblocking(true)?;
        let reports = tokio::net::UnixStream::from_std(started.socket.try_clone()?)?;
        let reports = Some(BufReader::new(reports).lines());
        Ok(Self { started, since: Instant::now(), hasty: 0, reports })
    }

    pub fn is(&self, process: Pid) -> bool {
        self.started.child.id() == process.as_raw() as u32
    }

    /// Where it has ended. Answers whether another one is there, which knows nothing yet.
    pub fn replace(&mut self) -> bool {
        let is_hasty = self.since.elapsed() < Duration::from_secs(1);
        let hasty = if is_hasty { self.hasty + 1 } else { 0 };
        if hasty > MOST_HASTY {
            note("the guard ends again and again: there is none from now on");
            return false;
        }
        let Started { asked, grace, .. } = &self.started;
        match Started::start(asked.clone(), *grace).and_then(Self::of) {
            Ok(another) => {
                *self = Self { hasty, ..another };
                true
            }
            Err(error) => {
                note(format_args!("the guard was ended, and another cannot be started: {error}"));
                false
            }
        }
    }

    /// Whoever has stopped it may have meant the tool.
    pub fn go_on(&self) {
        let _ = kill(Pid::from_raw(self.started.child.id() as i32), Signal::SIGCONT);
    }

    pub fn tell(&mut self, word: Word) {
        // Without a guard the tool still does its own part.
        let _ = self.started.socket.write_all(format!("{word}\n").as_bytes());
    }

    /// The next one. Nothing comes from a guard that has ended: of that the tool hears as its
    /// parent.
    pub async fn report(&mut self) -> Report {
        match self.next_report().await {
            Some(report) => report,
            None => future::pending().await,
        }
    }

    /// None where the guard has ended.
    async fn next_report(&mut self) -> Option<Report> {
        while let Ok(Some(line)) = self.reports.as_mut()?.next_line().await {
            if let Some(report) = read_report(&line) {
                return Some(report);
            }
        }
        self.reports = None;
        None
    }

    /// Has it start a process that becomes the command when it is continued: see `starter.rs`.
    pub async fn prepare(&mut self, permit: &Permit) -> Result<Pid, Failure> {
        let failed = |reason: &str| {
            Failure::new(SYSTEM, format!("the command cannot be prepared: {reason}"))
        };
        let (token, id) = (permit.fencing_token(), permit.id().to_string());
        loop {
            self.go_on();
            self.tell(Word::Prepare { token, id: id.clone() });
            match timeout(PATIENCE, self.next_report()).await {
                Ok(Some(Report::Prepared(command))) => return Ok(command),
                Ok(Some(Report::Failed(reason))) => return Err(failed(&reason)),
                Ok(Some(_)) => {}
                Ok(None) if self.replace() => {}
                Ok(None) => return Err(failed("there is no guard")),
                Err(_) => return Err(failed("its guard does not answer")),
            }
        }
    }

    /// Leaves no process behind.
    pub fn end(mut self) {
        self.go_on();
        self.tell(Word::Done);
        drop((self.started.socket, self.reports));
        // It may have been picked up with other children.
        let _ = self.started.child.wait();
    }
}
