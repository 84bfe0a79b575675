//! Counts events of this process's semaphores for the facade crate `metrics`. Without the feature
//! `metrics`, these types do nothing.
//!
//! `docs/metrics.md` describes each metric. Each request and each wait has a guard, so that every
//! ending is counted. A lease may report the end of its permit twice, but the end is counted once.

#[cfg(feature = "metrics")]
mod described;
#[cfg(feature = "metrics")]
mod meter;
#[cfg(not(feature = "metrics"))]
mod nothing;

#[cfg(feature = "metrics")]
pub(crate) use meter::{Hold, Meter, Meters, called, reconnected};
#[cfg(not(feature = "metrics"))]
pub(crate) use nothing::{Hold, Meter, Meters, called, reconnected};

/// The default for the maximum number of distinct names that become labels.
pub(crate) const MAX_NAMES: usize = 100;

/// How a permit was granted to this process.
#[derive(Clone, Copy)]
pub(crate) enum Origin {
    AtOnce,
    FromTheQueue,
    Adopted,
}

/// The names of connections in metrics and in the log.
pub(crate) const COMMANDS: &str = "commands";
pub(crate) const MESSAGES: &str = "messages";
