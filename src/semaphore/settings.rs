//! The settings with which this process built a semaphore.

use std::time::Duration;

use crate::error::Error;
use crate::protocol::id::MAX_SHARE;
use crate::releases::Ending;

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) limit: Limit,
    pub(crate) lease: Duration,
    pub(crate) auto_refresh: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) let_expire_on_drop: bool,
    pub(crate) acquire_timeout: Option<Duration>,
    pub(crate) acknowledgement: Option<Acknowledgement>,
    pub(crate) group_defaults: GroupDefaults,
}

impl Settings {
    /// Returns the lease that an acquire requests.
    pub(crate) fn first_lease(&self) -> Duration {
        self.max_hold.map_or(self.lease, |max_hold| max_hold.min(self.lease))
    }

    /// Returns what dropping a permit does.
    pub(crate) fn ending_on_drop(&self) -> Ending {
        if self.let_expire_on_drop { Ending::LetExpire } else { Ending::RETURN }
    }

    pub(crate) fn refresh_interval(&self) -> Duration {
        self.first_lease() / 3
    }

    pub(super) fn check_acknowledgement(&self) -> Result<(), Error> {
        let Some(Acknowledgement { replicas, within }) = self.acknowledgement else {
            return Ok(());
        };
        if replicas == 0 {
            return Err(Error::invalid("acknowledged_by", "must be at least 1 replica"));
        }
        let longest = self.first_lease() / 2;
        if within < Duration::from_millis(1) || within > longest {
            let reason = format!(
                "must be 1 ms to half of the lease or of max_hold ({longest:?}), not {within:?}"
            );
            return Err(Error::invalid("acknowledged_by", reason));
        }
        Ok(())
    }
}

/// The limit in the configuration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Limit {
    Declared(u32),
    Initial(u32),
    /// The limit that other clients declare, or the runtime limit.
    Existing,
}

impl Limit {
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Declared(limit) | Self::Initial(limit) => limit,
            Self::Existing => 0,
        }
    }
}

/// The number of replicas that must acknowledge a permit before the permit is returned, and the
/// time limit for the acknowledgements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acknowledgement {
    pub(crate) replicas: u32,
    pub(crate) within: Duration,
}

/// The share and cap of groups that set none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupDefaults {
    pub(crate) share: u16,
    pub(crate) cap: Option<u32>,
}

impl GroupDefaults {
    pub(super) fn check(self) -> Result<(), Error> {
        if !(1..=MAX_SHARE).contains(&self.share) {
            let reason = format!("must be 1 to {MAX_SHARE}, not {}", self.share);
            return Err(Error::invalid("group_share", reason));
        }
        match self.cap {
            Some(0) => Err(Error::invalid("group_cap", "must be at least 1, not 0")),
            _ => Ok(()),
        }
    }
}

impl Default for GroupDefaults {
    fn default() -> Self {
        Self { share: 1, cap: None }
    }
}
