//! Finds out from the results of attempts whether a server works. The start and the end of an
//! outage are logged.
//!
//! A single failure is not logged: proxies and servers close idle connections, and the next attempt
//! then succeeds. An outage starts when an attempt fails that began after an earlier failure.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::RedisError;

use super::LOG_TARGET;
use crate::error::{ConnectErrorKind, cause_of, is_end_of_runtime, is_full, is_refusal, says};
use crate::lock::Lock;

/// If this script succeeds, any outage ends, because a server that grants permits accepts writes.
const ACQUIRE: &str = "acquire";
/// If the last rejection is older than this, any successful attempt ends the outage.
const FORGOTTEN: Duration = Duration::from_secs(60);

pub(crate) struct Outages {
    /// The name of the connection in the log.
    connection: &'static str,
    state: Lock<Option<State>>,
}

/// The state after a failed attempt, until an attempt succeeds.
struct State {
    first_failure: Instant,
    /// The server of the last failure.
    server: String,
    /// The text of the last failure: the server, the finding and advice.
    last_failure: String,
    /// The last rejection of a script by a server that replies. Other commands may succeed.
    rejection: Option<Rejection>,
    outage: Option<Outage>,
}

struct Rejection {
    at: Instant,
    /// The rejected script, if the server may still execute scripts that only read or need no
    /// memory. Otherwise `None`.
    only: Option<String>,
}

impl Rejection {
    fn new(script: &str, error: &RedisError) -> Self {
        Self { at: Instant::now(), only: rejects_writes(error).then(|| script.to_owned()) }
    }

    /// Whether the rejection may continue although another call has succeeded. `script` is the
    /// script of the successful call.
    fn outlasts(&self, script: Option<&str>) -> bool {
        let is_over = match (script, &self.only) {
            // The success of a call without a script does not end the rejection of scripts. For
            // example, a cluster that is down still returns the map of its slots.
            (None, _) => false,
            (Some(_), None) => true,
            (Some(script), Some(rejected)) => [rejected, ACQUIRE].contains(&script),
        };
        !is_over && self.at.elapsed() < FORGOTTEN
    }
}

/// Returns the number of a new outage. No other outage of this process has this number.
pub(crate) fn next_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// An outage that is logged.
#[derive(Clone)]
pub(crate) struct Outage {
    pub(crate) number: u64,
    /// The finding, and advice.
    #[cfg_attr(
        not(feature = "tower"),
        expect(dead_code, reason = "only the tower layer reads it")
    )]
    pub(crate) reason: String,
    kind: ConnectErrorKind,
}

impl Outages {
    pub(crate) fn new(connection: &'static str) -> Self {
        Self { connection, state: Lock::new(None) }
    }

    pub(crate) fn is_fine(&self) -> bool {
        self.state.lock().is_none()
    }

    /// Records the failure of an attempt that began at `began`. Returns true if the attempt began
    /// after another attempt had failed, and no attempt has succeeded in between. If the error is
    /// the end of a runtime, nothing is recorded: the server has not failed.
    pub(crate) fn failed(
        &self,
        began: Instant,
        script: Option<&str>,
        server: String,
        error: &RedisError,
    ) -> bool {
        if is_end_of_runtime(error) {
            return false;
        }
        let mut state = self.state.lock();
        let rejected = script.filter(|_| is_refusal(error));
        let rejection = rejected.map(|script| Rejection::new(script, error));
        let cause = cause_of(error);
        let reason = cause.reason();
        let (what, message) = match is_full(error) {
            true => ("rejects new requests", "Redis rejects new requests"),
            false => ("is unavailable", "Redis is unavailable; calls are retried"),
        };
        let last_failure = format!("Redis at {server} {what}: {reason}");
        let Some(state) = &mut *state else {
            let first_failure = Instant::now();
            *state = Some(State { first_failure, server, last_failure, rejection, outage: None });
            return false;
        };
        state.last_failure = last_failure;
        state.server = server;
        // A failure that is not a rejection does not replace the last rejection. For example, a new
        // connection may fail for another reason.
        state.rejection = rejection.or(state.rejection.take());
        if began <= state.first_failure {
            return false;
        }
        // If the kind of the cause changes to a permanent kind, the outage is logged again.
        let is_known = |known: &Outage| known.kind == cause.kind || cause.kind.is_transient();
        if !state.outage.as_ref().is_some_and(is_known) {
            let number = state.outage.take().map_or_else(next_number, |known| known.number);
            tracing::warn!(
                target: LOG_TARGET,
                connection = self.connection,
                outage = number,
                server = state.server,
                error = reason,
                "{message}"
            );
            state.outage = Some(Outage { number, reason, kind: cause.kind });
        }
        true
    }

    /// Records a successful attempt at `server`, which may have replaced the server that failed.
    /// Returns whether the attempt ends a series of failures.
    pub(crate) fn succeeded(&self, script: Option<&str>, server: impl Fn() -> String) -> bool {
        let mut state = self.state.lock();
        let goes_on = |state: &State| {
            state.rejection.as_ref().is_some_and(|rejection| rejection.outlasts(script))
        };
        if state.as_ref().is_none_or(goes_on) {
            return false;
        }
        let ended = state.take().map(|state| State { server: server(), ..state });
        self.end(ended, "Redis is available again");
        true
    }

    /// Ends the outage, because the server is no longer used.
    pub(crate) fn forget(&self) {
        self.end(self.state.lock().take(), "the server is no longer used");
    }

    fn end(&self, state: Option<State>, message: &'static str) {
        if let Some(State { server, outage: Some(outage), .. }) = state {
            tracing::info!(
                target: LOG_TARGET,
                connection = self.connection,
                outage = outage.number,
                server,
                "{message}"
            );
        }
    }

    /// Returns why the last attempt failed, or `None` if it succeeded.
    pub(crate) fn last_failure(&self) -> Option<String> {
        Some(self.state.lock().as_ref()?.last_failure.clone())
    }

    #[cfg(feature = "tower")]
    pub(crate) fn current(&self) -> Option<Outage> {
        self.state.lock().as_ref()?.outage.clone()
    }
}

impl Drop for Outages {
    fn drop(&mut self) {
        self.forget();
    }
}

/// Whether the server may still execute calls that only read or need no memory.
fn rejects_writes(error: &RedisError) -> bool {
    is_full(error) || says(error, "READONLY") || says(error, "NOREPLICAS")
}
