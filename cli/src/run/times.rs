//! When the command must be told to end, so that it has ended before its lease has.

use std::time::Duration;

use humantime::format_duration;
use redis_semaphore::Permit;

use super::options::Run;
use crate::failure::Failure;

const DEFAULT_GRACE: Duration = Duration::from_secs(5);
const LONGEST_MARGIN: Duration = Duration::from_secs(1);
/// With less the guard and the tool could not tell a renewal that is late from one that fails.
const SHORTEST_LEASE: Duration = Duration::from_millis(500);

pub struct Times {
    /// From SIGTERM to SIGKILL, at most.
    pub grace: Duration,
    /// From SIGKILL to the end of the lease: signals take a moment, too.
    margin: Duration,
    lease: Duration,
}

impl Times {
    /// A lease is renewed every third of it, so it never has less than two thirds left while all is
    /// well. The grace must fit in there, and some time for which renewals may fail.
    pub fn of(asked: &Run) -> Result<Self, Failure> {
        let (lease, longest) = (asked.permit_lease(), asked.permit_lease() / 3);
        if lease < SHORTEST_LEASE && asked.per.is_none() {
            return Err(Failure::usage(format!(
                "--lease: {} is too short to end a command in time: ask for at least {}",
                format_duration(lease),
                format_duration(SHORTEST_LEASE)
            )));
        }
        let grace = asked.grace.unwrap_or(DEFAULT_GRACE.min(longest));
        if grace > longest {
            return Err(Failure::usage(format!(
                "--grace: {} is more than a third of --lease, {}: the command could not be ended \
                 before its lease has",
                format_duration(grace),
                format_duration(lease)
            )));
        }
        Ok(Self { grace, margin: (lease / 15).min(LONGEST_MARGIN), lease })
    }

    /// How long the command may go on as it is, if the permit is not renewed.
    pub fn left(&self, permit: &Permit) -> Duration {
        permit.expires_in().saturating_sub(self.grace + self.margin)
    }

    /// The same for the guard, who comes second.
    pub fn left_for_guard(&self, permit: &Permit) -> Duration {
        permit.expires_in().saturating_sub(self.grace + self.margin / 2)
    }

    /// From SIGTERM to SIGKILL, where that begins now: the command is killed before its lease ends.
    /// Once the permit is lost there is nothing to be kept, and all of the grace is the command's.
    pub fn grace_left(&self, permit: &Permit) -> Duration {
        match permit.is_lost() {
            true => self.grace,
            false => self.grace.min(permit.expires_in().saturating_sub(self.margin)),
        }
    }

    /// How long not to look at the permit: so short that each renewal is seen before the time is up
    /// that was left without it.
    pub fn pause(&self) -> Duration {
        self.lease / 6
    }

    /// Whether a permit is so young that its first renewal comes before its command would be ended.
    pub fn is_fresh(&self, permit: &Permit) -> bool {
        permit.expires_in() >= self.lease - self.lease / 6
    }
}
