//! Moments on a clock that all processes share.

use std::fmt;
use std::num::ParseIntError;
use std::ops::Sub;
use std::str::FromStr;
use std::time::Duration;

use crate::clock;

/// A moment on the clock that all processes share. The clock is never set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.as_nanos())
    }
}

impl FromStr for Moment {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        text.parse().map(|nanoseconds| Self(Duration::from_nanos(nanoseconds)))
    }
}
