//! Moments on a clock that all processes share.

use std::ops::Sub;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock;

/// A moment on the clock that all processes share. Changes of the system time do not affect it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Moment(Duration);

impl Moment {
    pub fn now() -> Self {
        Self(Duration::from_nanos(clock::now()))
    }

    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0 + duration)
    }
}

impl Sub for Moment {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}
