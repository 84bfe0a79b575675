//! The term of a permit: when it ends on this machine's monotonic clock, and how it ended.

use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Term {
    ends: Instant,
    /// A loss is final, because the holder may already know of the loss.
    lost: bool,
    /// The holder has let the permit go. A later expiry is no loss.
    let_go: bool,
    /// Whether the loss has been reported.
    reported: bool,
}

impl Term {
    pub(crate) fn until(ends: Instant) -> Self {
        Self { ends, lost: false, let_go: false, reported: false }
    }

    pub(crate) fn ends(&self) -> Instant {
        self.ends
    }

    /// Returns whether the permit is known to be lost. If the result is false, the lease may still
    /// have expired: see [`is_lost_at`](Self::is_lost_at).
    pub(crate) fn is_lost(&self) -> bool {
        self.lost
    }

    /// Returns whether the permit is known to be lost, or its holder has let it go.
    pub(crate) fn is_over(&self) -> bool {
        self.lost || self.let_go
    }

    pub(crate) fn is_lost_at(&self, now: Instant) -> bool {
        self.lost || (!self.let_go && now >= self.ends)
    }

    /// Returns whether the permit is lost, or its holder has let it go.
    pub(crate) fn is_over_at(&self, now: Instant) -> bool {
        self.is_over() || now >= self.ends
    }

    pub(crate) fn left_at(&self, now: Instant) -> Duration {
        if self.lost { Duration::ZERO } else { self.ends.saturating_duration_since(now) }
    }

    pub(crate) fn lose(&mut self) {
        self.lost = true;
    }

    /// Marks the loss as reported. Returns whether the loss was not reported before.
    pub(crate) fn mark_reported(&mut self) -> bool {
        !std::mem::replace(&mut self.reported, true)
    }

    pub(crate) fn expire(&mut self, now: Instant) {
        self.lost = self.is_lost_at(now);
    }

    pub(crate) fn let_go(&mut self, now: Instant) {
        self.expire(now);
        self.let_go = true;
    }

    pub(crate) fn refresh(&mut self, now: Instant, ends: Instant) {
        self.expire(now);
        if !self.is_over() {
            // Replies may arrive in an order that differs from the order of the requests.
            self.ends = self.ends.max(ends);
        }
    }
}
