//! The guard: the parent of the command. The guard ends the command if the CLI was killed or
//! stopped. The guard is a second process of this program. The CLI and the guard exchange messages
//! over a socket, which is the guard's input. The socket closes whenever the CLI ends.
//!
//! The guard is a "subreaper": it becomes the parent of each of its descendants that loses its
//! parent. So no process of the command escapes from the guard, neither with a new process group or
//! session, nor when the CLI is killed. If the guard is killed, the CLI inherits these processes
//! and starts another guard.

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

/// The timeout for a step that normally takes a millisecond.
const PATIENCE: Duration = Duration::from_secs(20);

/// If more than this many guards in a row each ended within a second, no other guard is started.
const MOST_HASTY: u32 = 10;

/// A guard process whose socket is not used by the async runtime yet.
pub struct Started {
    asked: Run,
    grace: Duration,
    child: Child,
    socket: UnixStream,
}

/// The guard, as the CLI sees it.
pub struct Guard {
    started: Started,
    since: Instant,
    /// How many guards in a row ended within a second before this guard.
    hasty: u32,
    reports: Option<Lines<BufReader<tokio::net::UnixStream>>>,
}

impl Started {
    pub fn start(asked: Run, grace: Duration) -> io::Result<Self> {
        let (socket, input) = UnixStream::pair()?;
        let mut guard = role::this_program()?;
        let child = guard
            // `pkill -f` searches this text, which must contain neither the name of the CLI nor the
            // command: see `watch`.
            .arg0("semaphore-guard")
            .env(role::VARIABLE, format!("{} {}", role::GUARD, format_duration(grace)))
            .env(NAME, &asked.name)
            .stdin(Stdio::from(OwnedFd::from(input)))
            // ^C and ^Z must not reach the guard.
            .process_group(0)
            .spawn()?;
        watch::pass_command(&socket, &asked.command)?;
        Ok(Self { asked, grace, child, socket })
    }
}

impl Guard {
    /// Returns the guard for use in the async runtime.
    pub fn of(started: Started) -> io::Result<Self> {
        // The CLI must not hang if its guard reads nothing.
        started.socket.set_nonblocking(true)?;
        let reports = tokio::net::UnixStream::from_std(started.socket.try_clone()?)?;
        let reports = Some(BufReader::new(reports).lines());
        Ok(Self { started, since: Instant::now(), hasty: 0, reports })
    }

    pub fn process(&self) -> Pid {
        Pid::from_raw(self.started.child.id() as i32)
    }

    /// Starts another guard after this guard has ended. Returns whether a new guard was started. A
    /// new guard does not know the command yet.
    pub fn replace(&mut self) -> bool {
        let is_hasty = self.since.elapsed() < Duration::from_secs(1);
        let hasty = if is_hasty { self.hasty + 1 } else { 0 };
        if hasty > MOST_HASTY {
            note(format_args!(
                "semaphore {}: the guard process keeps ending, so the command runs without a guard",
                self.started.asked.name
            ));
            return false;
        }
        let Started { asked, grace, .. } = &self.started;
        match Started::start(asked.clone(), *grace).and_then(Self::of) {
            Ok(another) => {
                *self = Self { hasty, ..another };
                true
            }
            Err(error) => {
                note(format_args!(
                    "semaphore {}: the guard process ended, and another cannot be started: {error}",
                    asked.name
                ));
                false
            }
        }
    }

    /// Continues the guard. The signal that stopped it was probably meant for the CLI.
    pub fn go_on(&self) {
        let _ = kill(self.process(), Signal::SIGCONT);
    }

    pub fn send(&mut self, word: Word) {
        // The write fails if the guard has ended. The CLI continues without a guard.
        let _ = self.started.socket.write_all(format!("{word}\n").as_bytes());
    }

    /// Waits for the next report. If the guard has ended, this function waits forever. When the
    /// guard ends, the CLI gets SIGCHLD, because the CLI is the guard's parent.
    pub async fn report(&mut self) -> Report {
        match self.next_report().await {
            Some(report) => report,
            None => future::pending().await,
        }
    }

    /// Returns the next report, or `None` if the guard has ended.
    async fn next_report(&mut self) -> Option<Report> {
        while let Ok(Some(line)) = self.reports.as_mut()?.next_line().await {
            if let Some(report) = read_report(&line) {
                return Some(report);
            }
        }
        self.reports = None;
        None
    }

    /// Makes the guard start a process that becomes the command when it is continued: see
    /// `starter.rs`.
    pub async fn prepare(&mut self, permit: &Permit) -> Result<Pid, Failure> {
        let failed =
            |reason: &str| Failure::new(SYSTEM, format!("cannot start the command: {reason}"));
        let (token, id) = (permit.fencing_token(), permit.id().to_string());
        loop {
            self.go_on();
            self.send(Word::Prepare { token, id: id.clone() });
            match timeout(PATIENCE, self.next_report()).await {
                Ok(Some(Report::Prepared(command))) => return Ok(command),
                Ok(Some(Report::Failed(reason))) => return Err(failed(&reason)),
                Ok(Some(_)) => {}
                Ok(None) if self.replace() => {}
                Ok(None) => return Err(failed("the guard process has ended")),
                Err(_) => return Err(failed("the guard process does not respond")),
            }
        }
    }

    /// Ends the guard, and waits for it.
    pub fn end(mut self) {
        self.go_on();
        self.send(Word::Done);
        drop((self.started.socket, self.reports));
        // The function `changes` may already have reaped the guard.
        let _ = self.started.child.wait();
    }
}
