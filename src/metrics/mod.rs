//! Counts events of this process's semaphores for the facade crate `metrics`. Feature `metrics`;
//! without it, all of this is empty.
//!
//! `docs/metrics.md` describes each metric. Requests and waits are counted by guards that live as
//! long, so that every ending is counted. Permits are counted by their leases, which may report an
//! end twice. It is counted once.

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

/// The default maximum of distinct names that become labels.
pub(crate) const MAX_NAMES: usize = 100;

/// How a permit was granted to this process.
#[derive(Clone, Copy)]
pub(crate) enum Origin {
    AtOnce,
    FromTheQueue,
    Adopted,
}

/// The names of connections in metrics.
pub(crate) const COMMANDS: &str = "commands";
pub(crate) const SUBSCRIPTION: &str = "subscription";
