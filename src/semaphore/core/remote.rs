//! Calls the scripts without batching. `docs/protocol.md` explains the scripts.

use std::sync::Arc;
use std::time::Duration;

use redis::{Arg, Cmd, FromRedisValue};
use tokio::time::Instant;

use super::{Core, Refresh, Release, Request, refresh};
use crate::error::Error;
use crate::protocol::id::{self, MAX_TIME};
use crate::protocol::{InspectReply, Inspection, millis, wake_in_of};
use crate::runtime::Deadline;
use crate::semaphore::ledger::Acquisition;
use crate::semaphore::settings::Limit;

/// A change of the limit, or of the cap of a group, for all processes.
#[derive(Clone, Copy)]
pub(crate) enum Change<'a> {
    Set(u32),
    Add(u32),
    Clear,
    /// The runtime cap of a group, or `None` to clear it.
    Cap(&'a str, Option<u32>),
}

impl Change<'_> {
    /// Returns the name of the method that the caller used. Errors contain this name.
    fn operation(self) -> &'static str {
        match self {
            Self::Set(_) => "set_limit",
            Self::Add(_) => "add_permits",
            Self::Clear => "clear_limit",
            Self::Cap(_, Some(_)) => "set_group_cap",
            Self::Cap(_, None) => "clear_group_cap",
        }
    }

    /// Returns the error for the caller. The caller has checked all arguments, except those that
    /// only the server can check.
    fn named(self, error: Error) -> Error {
        let is_about_an_argument = matches!(
            &error,
            Error::Rejected { source, .. } if source.code() == Some("SEM_ARG")
        );
        match self {
            Self::Add(_) if is_about_an_argument => {
                Error::invalid("n", format!("the limit would exceed {}", u32::MAX))
            }
            Self::Cap(..) if is_about_an_argument => {
                Error::invalid("group", "100 other groups have runtime caps: clear one of them")
            }
            _ => error,
        }
    }
}

/// Effective limits. A value of -1 means that no limit exists.
pub(crate) struct Limits {
    pub(crate) now: i64,
    pub(crate) before: i64,
}

impl Core {
    /// Calls a script for a caller in any runtime. A task makes the call, because a caller that is
    /// no longer polled would occupy one of the connection's slots for outgoing commands.
    async fn call<T: FromRedisValue + Send + 'static>(
        self: &Arc<Self>,
        script: &'static str,
        operation: &'static str,
        patience: Duration,
        write: impl Fn(&mut Cmd),
    ) -> Result<T, Error> {
        let deadline = Deadline::after(patience);
        let mut arguments = Cmd::new();
        write(&mut arguments);
        let core = self.clone();
        let (mark, (caller, under_way)) = (self.releases.mark(), self.abandonable_call());
        let run = Box::pin(async move {
            let _under_way = under_way;
            let write = |cmd: &mut Cmd| copy_arguments(&arguments, cmd);
            core.run(mark, script, operation, deadline, write).await
        });
        let response = self.context.in_a_task(run).await;
        drop(caller);
        response.map(|(_, reply)| reply)
    }

    /// Calls a script from a task. The releases of the permits and requests that were given up
    /// before `mark` are sent first.
    async fn run<T: FromRedisValue>(
        &self,
        mark: u64,
        script: &'static str,
        operation: &'static str,
        deadline: Deadline,
        write: impl Fn(&mut Cmd),
    ) -> Result<(Instant, T), Error> {
        let earlier = self.releases.until(mark);
        let write = |cmd: &mut Cmd| {
            self.write_keys(cmd);
            write(cmd);
        };
        let response = self.context.servers.run(self.slot, &earlier, script, write, deadline).await;
        response.map_err(|failure| self.error(operation, failure))
    }

    /// Notes the field `wake_in` of a reply, and returns the fields after it.
    pub(super) fn statuses<'a>(self: &Arc<Self>, reply: &'a [i64]) -> &'a [i64] {
        let [_, wake_in, statuses @ ..] = reply else {
            return &[];
        };
        self.note_bound(*wake_in);
        statuses
    }

    /// Plans an immediate `wake` if the script has stopped at its bound.
    fn note_bound(self: &Arc<Self>, wake_in: i64) {
        if wake_in == 0 {
            self.plan_wake(Some(Duration::ZERO));
        }
    }

    /// Refreshes up to 1,000 permits. Returns when the call was sent, and for each permit whether it
    /// is still held.
    pub(crate) async fn refresh_many(
        self: &Arc<Self>,
        requests: &[(&Acquisition, Duration)],
        patience: Duration,
    ) -> Result<(Instant, Vec<bool>), Error> {
        let (mark, deadline) = (self.releases.mark(), Deadline::after(patience));
        let write = |cmd: &mut Cmd| {
            for (acquisition, duration) in requests {
                refresh::write(cmd, acquisition, *duration);
            }
        };
        let (sent, reply): (_, Vec<i64>) =
            self.run(mark, Refresh::SCRIPT, Refresh::SCRIPT, deadline, write).await?;
        Ok((sent, Refresh::read(self, &reply, requests.len())))
    }

    /// Calls `wake`. Returns the time until the next call of `wake`, and the length of the queue.
    pub(crate) async fn wake(self: &Arc<Self>) -> Result<(Option<Duration>, u64), Error> {
        let patience = self.context.settings.call_timeout();
        let (_, next, queued): (i64, i64, u64) =
            self.call("wake", "wake", patience, |_| {}).await?;
        Ok((wake_in_of(next), queued))
    }

    /// Releases the permit or request with this ID, which may belong to another client. Returns a
    /// status that `lua/release.lua` defines.
    pub(crate) async fn revoke(self: &Arc<Self>, id: &str) -> Result<i64, Error> {
        let patience = self.context.settings.call_timeout();
        let write = |cmd: &mut Cmd| {
            cmd.arg("return").arg(id);
        };
        let (_, next, was): (i64, i64, i64) =
            self.call(Release::SCRIPT, "revoke", patience, write).await?;
        self.note_bound(next);
        Ok(was)
    }

    pub(crate) async fn change_limit(
        self: &Arc<Self>,
        change: Change<'_>,
    ) -> Result<Limits, Error> {
        let patience = self.context.settings.call_timeout();
        // All attempts have the same idempotency key, so that the change counts once.
        let key = self.idempotency_key(patience);
        let write = |cmd: &mut Cmd| {
            self.write_configuration(cmd);
            match change {
                Change::Set(limit) => cmd.arg("set").arg(limit),
                Change::Add(permits) => cmd.arg("add").arg(permits),
                Change::Clear => cmd.arg("clear"),
                Change::Cap(group, Some(cap)) => cmd.arg("cap").arg(cap).arg(group),
                Change::Cap(group, None) => cmd.arg("cap").arg("none").arg(group),
            };
            cmd.arg(&key);
        };
        let changed = self.call("limit", change.operation(), patience, write).await;
        let (_, next, now, before, _, declared_before): (i64, i64, i64, i64, i64, i64) =
            changed.map_err(|error| change.named(error))?;
        self.note_declared(declared_before);
        self.note_bound(next);
        Ok(Limits { now, before })
    }

    /// Writes the configured limit, and whether the server already knows it.
    pub(crate) fn write_configuration(&self, cmd: &mut Cmd) {
        let kind = match self.settings.limit {
            Limit::Declared(_) if self.is_declared() => "declare_if_unset",
            Limit::Declared(_) => "declare",
            Limit::Initial(_) => "initial",
            Limit::Existing => "existing",
        };
        cmd.arg(kind).arg(self.settings.limit.number());
    }

    /// Creates an idempotency key: an ID of weight 0 that lasts for as long as a call may still
    /// reach the server.
    fn idempotency_key(&self, patience: Duration) -> String {
        let latest = patience.saturating_add(self.context.settings.longest_trip());
        let lease = millis(latest.min(MAX_TIME));
        let start = id::start(&format!("N:{}:", self.context.client), 0, lease);
        format!("{start}{}", uuid::Uuid::new_v4().simple())
    }

    pub(crate) async fn inspect_page(
        self: &Arc<Self>,
        operation: &'static str,
        holders: (u64, u64),
        waiters: (u64, u64),
    ) -> Result<Inspection, Error> {
        let reply = self.call_inspect(operation, [holders, waiters, (0, 0)]).await?;
        Ok(Inspection::read(reply, self.settings.limit.number(), waiters.0))
    }

    /// Each page is the number of entries to skip, and to return: of the holders, the waiters and
    /// the groups.
    pub(crate) async fn call_inspect(
        self: &Arc<Self>,
        operation: &'static str,
        pages: [(u64, u64); 3],
    ) -> Result<InspectReply, Error> {
        let patience = self.context.settings.call_timeout();
        let write = |cmd: &mut Cmd| {
            for (skipped, count) in pages {
                cmd.arg(skipped).arg(count);
            }
        };
        self.call("inspect", operation, patience, write).await
    }
}

fn copy_arguments(from: &Cmd, to: &mut Cmd) {
    for argument in from.args_iter() {
        if let Arg::Simple(argument) = argument {
            to.arg(argument);
        }
    }
}
