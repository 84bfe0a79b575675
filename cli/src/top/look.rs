//! The result of one look at a semaphore.

use std::cmp::Reverse;
use std::time::Duration;

use redis_semaphore::{GroupInspection, Inspection};

use crate::group;
use crate::survey::Summary;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Look {
    pub summary: Summary,
    pub holders: Vec<Holder>,
    pub waiters: Vec<Waiter>,
    /// The groups, of which those with the longest queues come first.
    pub groups: Vec<Group>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Holder {
    pub id: String,
    pub client_name: String,
    pub weight: u32,
    pub lease_left: Duration,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Waiter {
    pub id: String,
    pub client_name: String,
    pub weight: u32,
    pub position: u64,
    pub waited: Duration,
    /// Whether the waiter's client has sent a heartbeat within the heartbeat timeout.
    pub is_there: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    pub held: u64,
    pub cap: Option<u32>,
    /// The cells of [`group::COLUMNS`].
    pub cells: Vec<String>,
}

impl Look {
    pub fn new(summary: Summary, now: Inspection, mut groups: Vec<GroupInspection>) -> Self {
        groups.sort_by_key(|group| Reverse((group.queued, group.held)));
        let holders = now.holders.into_iter().map(|holder| Holder {
            client_name: holder.client_name().to_owned(),
            weight: holder.weight,
            lease_left: holder.expires_in,
            id: holder.id,
        });
        let mut holders: Vec<_> = holders.collect();
        // If holders were sorted by their leases, they would move with each refresh.
        holders.sort_by(|a, b| a.id.cmp(&b.id));
        let waiters = now.waiters.into_iter().map(|waiter| Waiter {
            client_name: waiter.client_name().to_owned(),
            weight: waiter.weight,
            position: waiter.position,
            waited: waiter.waited,
            is_there: waiter.alive_for.is_some(),
            id: waiter.id,
        });
        let groups = groups.iter().map(|group| Group {
            held: group.held,
            cap: group.runtime_cap.or(group.cap),
            cells: group::cells(group),
        });
        Self { summary, holders, waiters: waiters.collect(), groups: groups.collect() }
    }
}

/// Returns the lease that an ID contains: see "IDs" in docs/protocol.md.
pub fn lease_of(id: &str) -> Option<Duration> {
    id.split(':').nth(3)?.parse().ok().map(Duration::from_millis)
}
