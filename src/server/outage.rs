//! Whether a server serves, as far as attempts show: an outage is logged once, and so is its end.
//!
//! One failure is not worth a line: proxies and servers cut idle connections, and the next attempt
//! works. So an outage begins with an attempt that began after another one had failed.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use redis::RedisError;

use super::LOG_TARGET;
use crate::error::{ConnectErrorKind, cause_of, is_full, says};

/// A server that grants permits takes writes again, whichever script it rejected.
const ACQUIRE: &str = "acquire";
/// If nothing was rejected for so long, because nothing was asked, calls of other scripts count.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// What the attempts are about, as the log names it.
#[derive(Clone, Copy)]
pub(crate) enum Line {
    Commands,
    Messages,
}

impl Line {
    fn name(self) -> &'static str {
        match self {
            Self::Commands => "commands",
            Self::Messages => "messages",
        }
    }
}

pub(crate) struct Outages {
    line: Line,
    /// Spares attempts that succeed the lock.
    is_fine: AtomicBool,
    state: Mutex<Option<State>>,
}

/// Something has failed, and nothing succeeded since.
struct State {
    first_failure: Instant,
    /// A call of this script was rejected then, while others may succeed.
    rejects: Option<(String, Instant)>,
    outage: Option<Outage>,
}

/// One that is logged.
#[derive(Clone)]
#[cfg_attr(not(feature = "tower"), expect(dead_code, reason = "the layer asks for it"))]
pub(crate) struct Outage {
    /// No other outage has it.
    pub(crate) number: u64,
    /// What was found, and what to do.
    pub(crate) reason: String,
    kind: ConnectErrorKind,
    server: String,
}

impl Outages {
    pub(crate) fn new(line: Line) -> Self {
        Self { line, is_fine: AtomicBool::new(true), state: Mutex::new(None) }
    }

    pub(crate) fn is_fine(&self) -> bool {
        self.is_fine.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock().expect("nothing panics while it is locked")
    }

    /// An attempt that began then has failed, for a reason that passes. Returns whether another one
    /// had failed before it began.
    pub(crate) fn failed(
        &self,
        began: Instant,
        script: Option<&str>,
        server: impl Display,
        error: &RedisError,
    ) -> bool {
        let mut state = self.state();
        self.is_fine.store(false, Ordering::Relaxed);
        let rejected = script.filter(|_| rejects_writes(error));
        let rejects = rejected.map(|script| (script.to_owned(), Instant::now()));
        let Some(state) = &mut *state else {
            *state = Some(State { first_failure: Instant::now(), rejects, outage: None });
            return false;
        };
        // A server that rejects writes may be left for a new connection, which fails in other ways.
        state.rejects = rejects.or(state.rejects.take());
        if began <= state.first_failure {
            return false;
        }
        let cause = cause_of(error);
        // One that turns into something that does not pass is worth another line.
        let is_known = |known: &Outage| known.kind == cause.kind || cause.kind.is_transient();
        if !state.outage.as_ref().is_some_and(is_known) {
            static NUMBERS: AtomicU64 = AtomicU64::new(1);
            let reason = cause.reason();
            let new = || (NUMBERS.fetch_add(1, Ordering::Relaxed), server.to_string());
            let known = state.outage.take().map(|known| (known.number, known.server));
            let (number, server) = known.unwrap_or_else(new);
            tracing::warn!(
                target: LOG_TARGET,
                connection = self.line.name(),
                server,
                error = reason,
                "Redis is unavailable; calls are retried"
            );
            state.outage = Some(Outage { number, reason, kind: cause.kind, server });
        }
        true
    }

    /// An attempt has succeeded. Returns whether that ends a row of failures.
    pub(crate) fn succeeded(&self, script: Option<&str>) -> bool {
        if self.is_fine() {
            return false;
        }
        let mut state = self.state();
        let goes_on = |state: &State| {
            state.rejects.as_ref().is_some_and(|(name, at)| {
                let shows = [&**name, ACQUIRE].contains(&script.unwrap_or_default());
                !shows && at.elapsed() < FORGOTTEN
            })
        };
        if state.as_ref().is_none_or(goes_on) {
            return false;
        }
        self.end(state.take(), "Redis is available again");
        true
    }

    /// Nobody needs the server any more.
    pub(crate) fn forget(&self) {
        self.end(self.state().take(), "the server is not used any more");
    }

    fn end(&self, state: Option<State>, message: &'static str) {
        self.is_fine.store(true, Ordering::Relaxed);
        if let Some(Outage { server, .. }) = state.and_then(|state| state.outage) {
            tracing::info!(
                target: LOG_TARGET,
                connection = self.line.name(),
                server,
                "{message}"
            );
        }
    }

    #[cfg(feature = "tower")]
    pub(crate) fn current(&self) -> Option<Outage> {
        if self.is_fine() {
            return None;
        }
        self.state().as_ref()?.outage.clone()
    }
}

impl Drop for Outages {
    fn drop(&mut self) {
        self.forget();
    }
}

/// Whether the server may still serve what only reads, or needs no room.
fn rejects_writes(error: &RedisError) -> bool {
    is_full(error) || says(error, "READONLY") || says(error, "NOREPLICAS")
}
