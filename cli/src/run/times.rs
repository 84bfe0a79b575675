//! When the command must get SIGTERM, so that it ends before its lease expires.

use std::time::Duration;

use humantime::format_duration;
use redis_semaphore::Permit;

use super::options::Run;
use crate::duration::WEEK;
use crate::failure::Failure;

const DEFAULT_GRACE: Duration = Duration::from_secs(5);
const LONGEST_MARGIN: Duration = Duration::from_secs(1);
/// With a shorter lease, a late refresh could not be distinguished from a failed refresh.
const SHORTEST_LEASE: Duration = Duration::from_millis(500);

pub struct Times {
    /// The longest time from SIGTERM to SIGKILL.
    pub grace: Duration,
    /// The time from SIGKILL to the expiry of the lease, because a signal takes time to act.
    margin: Duration,
    pub lease: Duration,
}

impl Times {
    /// Computes the times. A lease is refreshed at intervals of a third of its length, so normally
    /// at least two thirds of it remain. These two thirds must contain the grace, and some time in
    /// which refreshes may fail.
    pub fn of(asked: &Run) -> Result<Self, Failure> {
        let (lease, longest) = (asked.permit_lease(), asked.permit_lease() / 3);
        if asked.per.is_none() && !(SHORTEST_LEASE..=WEEK).contains(&lease) {
            return Err(Failure::usage(format!(
                "--lease: must be {} to {}, not {}",
                format_duration(SHORTEST_LEASE),
                format_duration(WEEK),
                format_duration(lease)
            )));
        }
        let grace = asked.grace.unwrap_or(DEFAULT_GRACE.min(longest));
        if grace > longest {
            return Err(Failure::usage(format!(
                "--grace: {} is more than a third of --lease ({}), so the command could not be \
                 ended before its lease expires: use a shorter --grace or a longer --lease",
                format_duration(grace),
                format_duration(lease)
            )));
        }
        Ok(Self { grace, margin: (lease / 15).min(LONGEST_MARGIN), lease })
    }

    /// Returns how long the command may continue if the permit is not refreshed.
    pub fn left(&self, permit: &Permit) -> Duration {
        permit.expires_in().saturating_sub(self.grace + self.margin)
    }

    /// Returns how long the command may continue until the guard acts. The guard acts later than
    /// the CLI.
    pub fn left_for_guard(&self, permit: &Permit) -> Duration {
        permit.expires_in().saturating_sub(self.grace + self.margin / 2)
    }

    /// Returns the time from SIGTERM to SIGKILL if SIGTERM is sent now. If the permit is still
    /// held, SIGKILL comes before the lease expires. If the permit is already lost, the command
    /// gets the whole grace.
    pub fn grace_left(&self, permit: &Permit) -> Duration {
        match permit.is_lost() {
            true => self.grace,
            false => self.grace.min(permit.expires_in().saturating_sub(self.margin)),
        }
    }

    /// Returns the time until the permit must be checked again. The CLI must find out about each
    /// refresh before the time at which it would send SIGTERM without that refresh.
    pub fn pause(&self) -> Duration {
        self.lease / 6
    }

    /// Returns whether the permit is so fresh that its first refresh is due before the command
    /// would get SIGTERM.
    pub fn is_fresh(&self, permit: &Permit) -> bool {
        permit.expires_in() >= self.lease - self.lease / 6
    }
}
