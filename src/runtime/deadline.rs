//! A deadline: a start and a duration.

use std::time::Duration;

use tokio::time::Instant;

/// The time until which a caller waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    since: Instant,
    patience: Duration,
}

impl Deadline {
    pub(crate) fn after(patience: Duration) -> Self {
        Self::since(Instant::now(), patience)
    }

    pub(crate) fn since(since: Instant, patience: Duration) -> Self {
        Self { since, patience }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    pub(crate) fn left_at(&self, now: Instant) -> Duration {
        self.patience.saturating_sub(now.saturating_duration_since(self.since))
    }
}
