//! The options of `run`.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use clap::Args;

use crate::duration::duration;
use crate::failure::{Failure, LOST, NO_PERMIT, SYSTEM, UNAVAILABLE, UNWRITABLE, USAGE};
use crate::group::GroupOptions;
use crate::identifier::identifier;
use crate::number::number;
use crate::run::label;

/// The default outage tolerance of the library.
pub const OUTAGE_TOLERANCE: Duration = Duration::from_secs(30);

const RUN: &str = "\
Examples: one job of this name at a time; at most ten starts in any minute:
  redis-semaphore run nightly --limit 1 -- ./back-up
  redis-semaphore run mails --limit 10 --per 60s -- ./send-mail

Exit status: that of the command; 128 plus the number of the signal that killed it; or
  2    an option is wrong, or no limit exists and --limit is missing
  69   Redis failed
  70   the permit was lost; in rare cases, the command had not begun
  71   the system refused a resource
  75   no permit within --timeout, or none immediately with --no-wait
  126  the command cannot be started
  127  the command was not found
After 69 and 71, the command was not started.

To use pipes or `&&`, write -- sh -c '...'.

Environment of the command:
  REDIS_SEMAPHORE_NAME   name of the semaphore
  REDIS_SEMAPHORE_ID     ID of the permit
  REDIS_SEMAPHORE_TOKEN  fencing token, larger than that of any permit granted before

Signals are forwarded to the process group of the command, with the exceptions in docs/cli.md. ^Z \
stops both.

If the permit is lost, the command and all processes that it has started get SIGTERM, and SIGKILL \
after --grace. If the permit cannot be refreshed, both signals come before the lease expires. The \
same happens if redis-semaphore is killed, or stopped alone. A command that ends by itself may \
leave background processes, which continue without a permit.

With --per, the command continues without the permit, even if redis-semaphore is killed. A failed \
start does not count.";

#[derive(Debug, Clone, Args)]
#[command(after_help = RUN)]
pub struct Run {
    /// Name of the semaphore, which must not begin with a dash
    pub name: String,
    /// Declare this limit for all processes; the newest declaration applies [default: the existing
    /// limit]
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = number(1..=u32::MAX)
    )]
    pub limit: Option<u32>,
    /// Weight of the permit
    #[arg(
        long,
        value_name = "WEIGHT",
        default_value_t = 1,
        value_parser = number(1..=u32::MAX)
    )]
    pub weight: u32,
    #[command(flatten)]
    pub group: GroupOptions,
    /// How long to wait for a permit, and for an unavailable server; less than 1ms means --no-wait
    /// [default: no limit for a permit, 30s for a server]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Fail if no permit is free immediately
    #[arg(long, conflicts_with_all = ["timeout", "head_start"])]
    pub no_wait: bool,
    /// Queue as if the request had arrived this much earlier, up to 1h
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "0s",
        value_parser = duration
    )]
    pub head_start: Duration,
    /// How long a permit stays valid without being refreshed, and so stays taken after a crash; at
    /// least 500ms
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "30s",
        value_parser = duration
    )]
    pub lease: Duration,
    /// Time between SIGTERM and SIGKILL if the permit is lost; at most a third of --lease [default:
    /// 5s, or a third of a shorter --lease]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub grace: Option<Duration>,
    /// Job name, which `inspect`, `top` and `revoke` show [default: file name of the command]
    #[arg(long, value_name = "LABEL", value_parser = identifier(label::LONGEST))]
    pub label: Option<String>,
    /// Exit status instead of 75, if no permit is granted in time
    #[arg(long, value_name = "STATUS")]
    pub conflict_status: Option<u8>,
    /// Exit status instead of 70, if the permit is lost
    #[arg(long, value_name = "STATUS")]
    pub lost_status: Option<u8>,
    /// Exit status instead of 2, 69, 71 and 74, for other failures
    #[arg(long, value_name = "STATUS")]
    pub error_status: Option<u8>,
    /// Limit the start rate instead: at most --limit starts in any period of this length. A lost
    /// permit then does not end the command
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = duration,
        conflicts_with_all = ["grace", "lease"]
    )]
    pub per: Option<Duration>,
    /// Command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

impl Run {
    pub fn waits(&self) -> bool {
        let is_short = |timeout: Duration| timeout < Duration::from_millis(1);
        !self.no_wait && !self.timeout.is_some_and(is_short)
    }

    pub fn permit_lease(&self) -> Duration {
        self.per.unwrap_or(self.lease)
    }

    /// Returns how long to wait for an unavailable server.
    pub fn patience(&self) -> Duration {
        match self.waits() {
            true => self.timeout.unwrap_or(OUTAGE_TOLERANCE),
            false => Duration::ZERO,
        }
    }

    /// Returns how long to wait for the limits, which only notes need. Without a wait for a permit,
    /// the library's own timeout applies.
    pub fn time_for_notes(&self, began: Instant) -> Duration {
        match self.waits() {
            true => self.patience().saturating_sub(began.elapsed()),
            false => Duration::MAX,
        }
    }

    /// Returns the exit status for a failure of the CLI, not of the command.
    pub fn own_status(&self, usual: u8) -> u8 {
        let asked = match usual {
            NO_PERMIT => self.conflict_status,
            LOST => self.lost_status,
            USAGE | UNAVAILABLE | SYSTEM | UNWRITABLE => self.error_status,
            _ => None,
        };
        asked.unwrap_or(usual)
    }

    /// Sets the exit status, and names the option that sets the lease, for `map_err`.
    pub fn own(&self, Failure { status, reason }: Failure) -> Failure {
        let reason = if self.per.is_some() { with_per(&reason) } else { reason };
        Failure { status: self.own_status(status), reason }
    }
}

/// Names `--per` instead of `--lease` in an error message.
pub fn with_per(text: &str) -> String {
    text.replace("--lease", "--per")
}
