//! The types of `meter.rs`, if the feature `metrics` is disabled. These types do nothing.

use tokio::time::Instant;

use super::Origin;
use crate::error::Error;

pub(crate) struct Meters;

impl Meters {
    pub(crate) fn new(_max_names: usize) -> Self {
        Self
    }

    pub(crate) fn meter(&self, _name: &str) -> Meter {
        Meter
    }
}

pub(crate) struct Meter;

impl Meter {
    pub(crate) fn asks(&self) -> Asking {
        Asking
    }

    pub(crate) fn waits(&self) -> WaitGuard {
        WaitGuard
    }

    pub(crate) fn not_granted(&self) {}

    pub(crate) fn granted(&self, _origin: Origin, _weight: u32, _asked: Instant) -> Hold {
        Hold
    }

    pub(crate) fn refresh_failed(&self) {}
}

pub(crate) struct Asking;

impl Asking {
    pub(crate) fn ended<T>(self, _response: &Result<T, Error>) {}
}

pub(crate) struct WaitGuard;

pub(crate) struct Hold;

impl Hold {
    pub(crate) fn ended(&self, _at: Instant, _is_lost: bool) {}
}

pub(crate) fn called(_script: &'static str, _sent: Instant, _is_ok: bool, _batch: Option<usize>) {}

pub(crate) fn reconnected(_connection: &'static str) {}
