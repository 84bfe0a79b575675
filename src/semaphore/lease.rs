//! A lease: how long a permit is held, and how long it may be refreshed.
//!
//! In this process, a lease counts from a moment before the request was sent. The lease therefore
//! expires in this process before it expires on the server, unless the server's clock jumps
//! forward. The server's clock is never compared with the clock of this process. The server counts
//! in whole ms, starting with the ms in which the lease begins: see [`lasts`].

use std::sync::OnceLock;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use crate::lock::Lock;
use crate::metrics::Hold;
use crate::protocol::millis;
use crate::semaphore::term::Term;

/// A grant of a permit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grant {
    pub(crate) token: u64,
    /// A moment before the grant. The lease counts from this moment.
    pub(crate) since: Instant,
}

/// Returns for how long a lease of this duration is guaranteed on the server. This time is 1 ms
/// shorter, because the ms in which the lease begins may be almost over.
pub(crate) fn lasts(duration: Duration) -> Duration {
    Duration::from_millis(millis(duration) - 1)
}

pub(crate) struct Lease {
    pub(crate) token: u64,
    /// The time at which the permit is lost, however often it is refreshed.
    latest_end: Option<Instant>,
    term: Lock<Term>,
    /// Notifies the watches of each change. Most permits are never watched.
    changes: OnceLock<Box<Notify>>,
    hold: Hold,
}

impl Lease {
    pub(crate) fn new(
        grant: Grant,
        duration: Duration,
        max_hold: Option<Duration>,
        hold: Hold,
    ) -> Self {
        let term = Lock::new(Term::until(grant.since + lasts(duration)));
        // A bound that exceeds the range of the clock is ignored.
        let latest_end = max_hold.and_then(|max_hold| grant.since.checked_add(max_hold));
        Self { token: grant.token, latest_end, term, changes: OnceLock::new(), hold }
    }

    /// Returns the term. Callers must read the clock before this call. [`change`](Self::change)
    /// reads the clock under the lock. So if a caller has found the permit lost, no later refresh
    /// succeeds.
    pub(crate) fn term(&self) -> Term {
        *self.term.lock()
    }

    fn change(&self, change: impl FnOnce(&mut Term, Instant)) -> Term {
        let term = self.update(|term| change(term, Instant::now()));
        if term.is_over() {
            self.hold.ended(Instant::now(), term.is_lost());
        }
        term
    }

    fn update(&self, change: impl FnOnce(&mut Term)) -> Term {
        let mut locked = self.term.lock();
        change(&mut locked);
        let term = *locked;
        drop(locked);
        // This call is outside of the lock, because it wakes tasks.
        if let Some(changes) = self.changes.get() {
            changes.notify_waiters();
        }
        term
    }

    /// Completes at the next change after this call.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changes.get_or_init(Box::default).notified()
    }

    /// Returns the lease that the next refresh requests, or `None` if the permit has reached its
    /// latest end.
    pub(crate) fn next_duration(&self, duration: Duration) -> Option<Duration> {
        let Some(latest_end) = self.latest_end else {
            return Some(duration);
        };
        let left = latest_end.saturating_duration_since(Instant::now()).min(duration);
        (left >= Duration::from_millis(1)).then_some(left)
    }

    /// Notes a refresh that was sent at `sent`. Returns false if the permit is lost.
    pub(crate) fn refreshed(&self, sent: Instant, duration: Duration) -> bool {
        let ends = sent + lasts(duration);
        // The refresh may have been sent some time after its duration was computed, so `ends` may
        // be after the latest end.
        let ends = self.latest_end.map_or(ends, |latest| latest.min(ends));
        !self.change(|term, now| term.refresh(now, ends)).is_lost()
    }

    /// Marks the permit as lost. Returns true for the first call only: the caller then reports the
    /// loss.
    pub(crate) fn lose(&self) -> bool {
        let mut is_news = false;
        self.change(|term, _| {
            term.lose();
            is_news = term.mark_reported();
        });
        is_news
    }

    /// Marks the permit as lost, but does not report the loss.
    pub(crate) fn lose_unreported(&self) {
        self.update(Term::lose);
    }

    pub(crate) fn is_lost(&self) -> bool {
        let now = Instant::now();
        self.term().is_lost_at(now)
    }

    /// Notes that the holder has let the permit go. Returns whether the permit was already lost.
    pub(crate) fn let_go(&self) -> bool {
        self.change(Term::let_go).is_lost()
    }

    pub(crate) fn expires_in(&self) -> Duration {
        let now = Instant::now();
        self.term().left_at(now)
    }
}
