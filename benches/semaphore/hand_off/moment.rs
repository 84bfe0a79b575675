//! The system's monotonic clock, which the processes of one machine share.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::support::Result;

/// Returns how long this machine has run.
pub fn now() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_MONOTONIC)?.into())
}

pub fn write(moment: Duration) -> String {
    moment.as_nanos().to_string()
}

pub fn read(text: &str) -> Result<Duration> {
    Ok(Duration::from_nanos(text.trim().parse()?))
}
