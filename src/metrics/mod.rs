//! What this process counts of its semaphores, for the facade crate `metrics`. Feature `metrics`;
//! without it all of this is empty.
//!
//! `docs/metrics.md` says what each event is. Requests and waits are counted by guards that live as
//! long as they do, so no way to end goes uncounted. Permits are counted by their leases, which may
//! tell an end twice, and are heard once.

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
pub(crate) const MAX_NAMES: usize = 100;

/// How a permit came to this process.
#[derive(Clone, Copy)]
pub(crate) enum Origin {
    AtOnce,
    FromTheQueue,
    Adopted,
}

/// Connections, as metrics name them.
pub(crate) const COMMANDS: &str = "commands";
pub(crate) const SUBSCRIPTION: &str = "subscription";
