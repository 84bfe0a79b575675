//! Until when a permit is held, on this machine's monotonic clock, and how it ended.

use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Term {
    ends: Instant,
    /// Once lost, lost for good: the holder may have been told.
    lost: bool,
    /// By its holder: what comes after that is no loss.
    let_go: bool,
    /// Whether somebody has told of the loss.
    told: bool,
}

impl Term {
    pub(crate) fn until(ends: Instant) -> Self {
        Self { ends, lost: false, let_go: false, told: false }
    }

    pub(crate) fn ends(&self) -> Instant {
        self.ends
    }

    /// Whether that is known: its end may have passed unseen.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost
    }

    /// Whether it is known to be lost, or its holder has let go of it.
    pub(crate) fn is_over(&self) -> bool {
        self.lost || self.let_go
    }

    pub(crate) fn is_lost_at(&self, now: Instant) -> bool {
        self.lost || (!self.let_go && now >= self.ends)
    }

    /// Whether it is lost, or its holder has let go of it.
    pub(crate) fn is_over_at(&self, now: Instant) -> bool {
        self.is_over() || now >= self.ends
    }

    pub(crate) fn left_at(&self, now: Instant) -> Duration {
        if self.lost { Duration::ZERO } else { self.ends.saturating_duration_since(now) }
    }

    pub(crate) fn lose(&mut self) {
        self.lost = true;
    }

    /// Answers whether nobody has told of it yet.
    pub(crate) fn tell(&mut self) -> bool {
        !std::mem::replace(&mut self.told, true)
    }

    pub(crate) fn expire(&mut self, now: Instant) {
        self.lost = self.is_lost_at(now);
    }

    pub(crate) fn let_go(&mut self, now: Instant) {
        self.expire(now);
        self.let_go = true;
    }

    /// Unless it is over.
    pub(crate) fn renew(&mut self, now: Instant, ends: Instant) {
        self.expire(now);
        if !self.is_over() {
            // Answers may come in another order than they were asked for.
            self.ends = self.ends.max(ends);
        }
    }
}
