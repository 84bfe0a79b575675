//! What this process counts of its semaphores, for the facade crate `metrics`. Feature `metrics`;
//! without it all of this is empty.
//!
//! `docs/metrics.md` says what each event is. What begins and ends is counted by a guard that lives
//! as long as it does, so no way to end goes uncounted, and none counts twice.

#[cfg(feature = "metrics")]
mod described;
#[cfg(feature = "metrics")]
mod labels;
#[cfg(feature = "metrics")]
mod meter;
#[cfg(not(feature = "metrics"))]
mod nothing;

#[cfg(feature = "metrics")]
pub(crate) use meter::{CallMeter, Hold, Meter, Meters, called, reconnected};
#[cfg(not(feature = "metrics"))]
pub(crate) use nothing::{CallMeter, Hold, Meter, Meters, called, reconnected};

/// Distinct names that become labels, unless set.
pub(crate) const MOST_NAMES: usize = 100;

/// How a permit came to this process.
#[derive(Clone, Copy)]
pub(crate) enum Came {
    AtOnce,
    FromTheQueue,
    Adopted,
}

/// Connections, as metrics name them.
pub(crate) const COMMANDS: &str = "commands";
pub(crate) const WAKE_UPS: &str = "wake-ups";
