//! What may be asked of `run`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

use crate::failure::{Failure, LOST, NO_PERMIT, SYSTEM, UNAVAILABLE, UNWRITABLE, USAGE};
use crate::number::number;
use crate::run::label;

/// That of the library.
pub const OUTAGE_TOLERANCE: Duration = Duration::from_secs(30);

const RUN: &str = "\
Of all jobs with this name one at a time, and at most ten starts in any minute:
  redis-semaphore run nightly --limit 1 -- ./back-up
  redis-semaphore run mails --limit 10 --per 60s -- ./send-mail

Exit status: that of the command; 128 and the number of the signal that killed it; or
  2    an option is wrong, or no limit is in force and there is no --limit
  69   Redis cannot be reached or used, refused the call, or gave no answer; the command was not started
  70   the permit was lost; the command was not started, was ended, or had just ended by itself
  71   the system refused a file, a process or the like; the command was not started
  75   no permit within --timeout, or none at once with --no-wait
  126  the command cannot be started
  127  the command was not found
Where the command has such statuses of its own, --conflict-status, --lost-status and --error-status set others. \
(Options that cannot be read are 2 all the same.)

Who waits is served in the order of arrival. A line at a terminal tells of a wait, nothing a log; \
`redis-semaphore inspect NAME` shows who holds and who waits. A signal that ends the wait ends this \
tool, too.

The command is run as it is: for pipes, `&&` and the like write -- sh -c '...'.

The command has in its environment:
  REDIS_SEMAPHORE_NAME   the name of the semaphore
  REDIS_SEMAPHORE_ID     the permit, as Redis shows it
  REDIS_SEMAPHORE_TOKEN  the fencing token: larger than that of all permits granted before

It runs in a process group of its own, in the foreground of the terminal where there is one. Signals to \
this tool are passed on to that group: all that can be caught, but for SIGCHLD, SIGPIPE and SIGXFSZ (of its own \
children and output), SIGBUS, SIGFPE, SIGILL, SIGSEGV and SIGSYS (faults of its own), and real-time signals, whose \
values cannot be passed on: send those to the command. Where no shell could have the command go on, SIGTSTP, \
SIGTTIN and SIGTTOU do not stop it: it only hears of them.

When the permit is lost, the command gets SIGTERM, and SIGKILL after --grace, and so does all that it has \
started, in whatever process group or session that is (timeout, setsid, set -m); where renewals fail, early enough \
that both come before the lease ends. The same happens when this tool is killed, or stopped alone (kill \
-STOP): ^Z stops both. What cannot be ended, such as another user's process, is named on standard error. A \
command that is killed, or ends after a SIGINT, SIGQUIT or SIGTERM to this tool, leaves nothing behind either: the \
permit is given back when all has ended. One that ends by itself may leave something in the background, which \
goes on without a permit.

With --per, the permit is held until the command has started, and for that long from then on. The command \
runs on without the permit, also if this tool is killed. A command that could not be started does not count.";

#[derive(Debug, Clone, Args)]
#[command(after_help = RUN)]
pub struct Run {
    /// The name of the semaphore. One that begins with a dash cannot be used here, as it would be
    /// taken for an option
    pub name: String,
    /// How much may be held at once. This declares it for everybody: of several the newest is in
    /// force [default: the limit in force]
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = number(1..=u32::MAX)
    )]
    pub limit: Option<u32>,
    /// How much of the limit the command takes
    #[arg(
        long,
        value_name = "WEIGHT",
        default_value_t = 1,
        value_parser = number(1..=u32::MAX)
    )]
    pub weight: u32,
    /// How long to wait for a permit, and meanwhile for a server that serves; less than 1ms is
    /// --no-wait [default: without end for a permit, 30s for a server]
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub timeout: Option<Duration>,
    /// Take a permit at once or not at all
    #[arg(long, conflicts_with_all = ["timeout", "head_start"])]
    pub no_wait: bool,
    /// Wait ahead of those who came at most this much earlier: up to 1h
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "0s",
        value_parser = humantime::parse_duration
    )]
    pub head_start: Duration,
    /// How long a permit stays valid without being refreshed, and so stays taken if the machine or
    /// this tool crashes: at least 500ms. The command goes on without Redis for at least two thirds
    /// of it, less --grace and a second: 14s by default
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "30s",
        value_parser = humantime::parse_duration
    )]
    pub lease: Duration,
    /// What the command has between SIGTERM and SIGKILL when the permit is lost: at most a third of
    /// --lease, since it comes off the time for which renewals may fail [default: 5s, or a third of
    /// --lease where that is shorter]
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub grace: Option<Duration>,
    /// The name of this job for others: `inspect`, `top` and `revoke` show it before host and
    /// process. Up to 32 letters, digits, '.', '_' and '-' [default: the file name of the command]
    #[arg(long, value_name = "LABEL", value_parser = label::parse)]
    pub label: Option<String>,
    /// The exit status instead of 75: no permit in time
    #[arg(long, value_name = "STATUS")]
    pub conflict_status: Option<u8>,
    /// The exit status instead of 70: the permit was lost
    #[arg(long, value_name = "STATUS")]
    pub lost_status: Option<u8>,
    /// The exit status instead of 2, 69, 71 and 74: this tool failed for another reason
    #[arg(long, value_name = "STATUS")]
    pub error_status: Option<u8>,
    /// Limit how often commands start instead of how many run: at most --limit of them in any such
    /// time. The loss of a permit ends no command
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = humantime::parse_duration,
        conflicts_with_all = ["grace", "lease"]
    )]
    pub per: Option<Duration>,
    /// The command and its arguments, after --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

impl Run {
    pub fn waits(&self) -> bool {
        let is_short = |timeout: Duration| timeout < Duration::from_millis(1);
        !self.no_wait && !self.timeout.is_some_and(is_short)
    }

    /// The lease of the permit.
    pub fn permit_lease(&self) -> Duration {
        self.per.unwrap_or(self.lease)
    }

    /// Names the option that set the lease.
    pub fn names_per(&self, Failure { status, reason }: Failure) -> Failure {
        let option = if self.per.is_some() { "--per" } else { "--lease" };
        Failure { status, reason: reason.replace("--lease", option) }
    }

    /// How long to wait for a server that serves.
    pub fn patience(&self) -> Duration {
        match self.waits() {
            true => self.timeout.unwrap_or(OUTAGE_TOLERANCE),
            false => Duration::ZERO,
        }
    }

    /// How this tool ends where the status is its own, and not the command's.
    pub fn own_status(&self, usual: u8) -> u8 {
        let asked = match usual {
            NO_PERMIT => self.conflict_status,
            LOST => self.lost_status,
            USAGE | UNAVAILABLE | SYSTEM | UNWRITABLE => self.error_status,
            _ => None,
        };
        asked.unwrap_or(usual)
    }

    /// For `map_err`.
    pub fn own(&self, Failure { status, reason }: Failure) -> Failure {
        Failure { status: self.own_status(status), reason }
    }
}
