//! Counters, gauges and histograms. Each semaphore creates its handles once, because it costs more
//! to look up a handle than to count an event. A call takes much longer than a lookup, so calls need
//! no handles.

use std::collections::HashSet;
use std::panic::RefUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use ::metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use tokio::time::Instant;

use super::Origin;
use super::described::{
    ACQUIRES, BATCH, CALL, HELD, HOLD, LOST, QUEUED, RECONNECTS, REFRESH_FAILURES, WAIT, describe,
};
use crate::error::Error;
use crate::lock::Lock;

/// The label of all names beyond the limit. Names have no braces, so no semaphore has this name.
const OTHER: &str = "{other}";

/// The meters of all semaphores of one client. Names of semaphores are labels. In Prometheus, each
/// name adds about 40 time series (with 12 buckets). The number of names is limited, because names
/// may contain the IDs of users or orders.
pub(crate) struct Meters {
    max_names: usize,
    /// A name stays a label after its semaphores are dropped, because its time series remain.
    names: Lock<HashSet<String>>,
}

impl Meters {
    pub(crate) fn new(max_names: usize) -> Self {
        describe();
        Self { max_names, names: Lock::default() }
    }

    pub(crate) fn meter(&self, name: &str) -> Meter {
        Meter(Arc::new(Handles::of(self.label(name).to_owned())))
    }

    fn label<'a>(&self, name: &'a str) -> &'a str {
        let mut names = self.names.lock();
        if !names.contains(name) {
            if names.len() >= self.max_names {
                return OTHER;
            }
            names.insert(name.to_owned());
        }
        name
    }
}

/// The outcome of a request, in the order of [`Outcome::LABELS`].
#[derive(Clone, Copy)]
enum Outcome {
    Immediate,
    Waited,
    Adopted,
    NoPermit,
    Timeout,
    Cancelled,
    Closed,
    Failed,
}

impl Outcome {
    const LABELS: [&str; 8] =
        ["immediate", "waited", "adopted", "no_permit", "timeout", "cancelled", "closed", "failed"];

    /// Returns the outcome of a request that failed with this error, or `None` if the request is
    /// invalid.
    fn of(error: &Error) -> Option<Self> {
        match error {
            Error::Invalid { .. } => None,
            Error::Timeout { .. } => Some(Self::Timeout),
            Error::Closed { .. } | Error::Shutdown => Some(Self::Closed),
            _ => Some(Self::Failed),
        }
    }
}

pub(crate) struct Meter(Arc<Handles>);

struct Handles {
    acquires: [Counter; Outcome::LABELS.len()],
    wait: Histogram,
    queued: Gauge,
    held: Gauge,
    hold: Histogram,
    lost: Counter,
    refresh_failures: Counter,
}

/// A recorder of metrics must work after a panic in any case, because all threads share it.
impl RefUnwindSafe for Handles {}

impl Handles {
    fn of(name: String) -> Self {
        let acquires = |outcome: &'static str| counter!(ACQUIRES, "semaphore" => name.clone(), "outcome" => outcome);
        Self {
            acquires: Outcome::LABELS.map(acquires),
            wait: histogram!(WAIT, "semaphore" => name.clone()),
            queued: gauge!(QUEUED, "semaphore" => name.clone()),
            held: gauge!(HELD, "semaphore" => name.clone()),
            hold: histogram!(HOLD, "semaphore" => name.clone()),
            lost: counter!(LOST, "semaphore" => name.clone()),
            refresh_failures: counter!(REFRESH_FAILURES, "semaphore" => name),
        }
    }

    fn count(&self, outcome: Outcome) {
        self.acquires[outcome as usize].increment(1);
    }
}

impl Meter {
    pub(crate) fn asks(&self) -> Asking<'_> {
        Asking { handles: &self.0, has_ended: false }
    }

    /// Counts a request in the queue until the result is dropped.
    pub(crate) fn waits(&self) -> WaitGuard<'_> {
        self.0.queued.increment(1);
        WaitGuard(&self.0)
    }

    pub(crate) fn not_granted(&self) {
        self.0.count(Outcome::NoPermit);
    }

    /// Records that a permit is returned to the caller, who requested it at `asked`.
    pub(crate) fn granted(&self, origin: Origin, weight: u32, asked: Instant) -> Hold {
        let since = Instant::now();
        self.0.count(match origin {
            Origin::AtOnce => Outcome::Immediate,
            Origin::FromTheQueue => Outcome::Waited,
            Origin::Adopted => Outcome::Adopted,
        });
        // Most requests do not wait. A request that does not wait takes one call, and the time of
        // calls is measured already.
        if matches!(origin, Origin::FromTheQueue) {
            self.0.wait.record(since - asked);
        }
        self.0.held.increment(weight);
        Hold { handles: self.0.clone(), weight, since, ended: AtomicU8::new(0) }
    }

    pub(crate) fn refresh_failed(&self) {
        self.0.refresh_failures.increment(1);
    }
}

/// A request for a permit, which counts as canceled if it is dropped before its end.
pub(crate) struct Asking<'a> {
    handles: &'a Handles,
    has_ended: bool,
}

impl Asking<'_> {
    /// Records the end of the request. Only an error is counted here, because every other outcome
    /// is counted already.
    pub(crate) fn ended<T>(mut self, response: &Result<T, Error>) {
        self.has_ended = true;
        if let Some(outcome) = response.as_ref().err().and_then(Outcome::of) {
            self.handles.count(outcome);
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.handles.count(Outcome::Cancelled);
        }
    }
}

pub(crate) struct WaitGuard<'a>(&'a Handles);

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.queued.decrement(1);
    }
}

/// A permit, as long as it is held.
pub(crate) struct Hold {
    handles: Arc<Handles>,
    weight: u32,
    since: Instant,
    /// Bits for the events that were counted.
    ended: AtomicU8,
}

const ENDED: u8 = 1;
const LOST_BEFORE: u8 = 2;

impl Hold {
    /// Records that the permit is no longer held. A later call may add that the permit was lost.
    pub(crate) fn ended(&self, at: Instant, is_lost: bool) {
        let reported = if is_lost { ENDED | LOST_BEFORE } else { ENDED };
        let new = reported & !self.ended.fetch_or(reported, Ordering::Relaxed);
        if new & ENDED != 0 {
            self.handles.held.decrement(self.weight);
            self.handles.hold.record(at.saturating_duration_since(self.since));
        }
        if new & LOST_BEFORE != 0 {
            self.handles.lost.increment(1);
        }
    }
}

/// Records that a call has ended. `batch` is the number of its requests, if it is a batch.
pub(crate) fn called(script: &'static str, sent: Instant, is_ok: bool, batch: Option<usize>) {
    let outcome = if is_ok { "succeeded" } else { "failed" };
    histogram!(CALL, "script" => script, "outcome" => outcome).record(sent.elapsed());
    if let Some(requests) = batch {
        histogram!(BATCH, "script" => script).record(requests as f64);
    }
}

pub(crate) fn reconnected(connection: &'static str) {
    counter!(RECONNECTS, "connection" => connection).increment(1);
}
