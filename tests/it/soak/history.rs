//! What happened: what the clients believed, and what was done to them, on one clock.

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Nanoseconds on the system's monotonic clock, which all processes of a machine share.
pub type Moment = u64;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub at: Moment,
    /// A process that was killed never comes back: the one in its place has another number.
    pub process: u32,
    pub what: What,
}

/// A turn is one acquire and what comes of it, numbered by its process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Begins to ask for a permit.
    Asks {
        turn: u64,
        semaphore: usize,
        weight: u64,
    },
    /// Has it, with a lease that lasts until then as far as the client knows.
    Holds {
        turn: u64,
        semaphore: usize,
        token: u64,
        until: Moment,
    },
    Renewed {
        turn: u64,
        until: Moment,
    },
    /// Begins to give it back, and uses it no more.
    Releases {
        turn: u64,
    },
    /// Was told that it is lost.
    Lost {
        turn: u64,
    },
    /// Waits no longer, and has nothing.
    GivesUp {
        turn: u64,
    },
    /// Begins to set a limit.
    SetsLimit {
        semaphore: usize,
        limit: u64,
    },
    /// It is in force.
    LimitIs {
        semaphore: usize,
        limit: u64,
    },
    /// Something is done to this process alone, ...
    Killed,
    Stopped,
    Continued,
    /// ... or, by the nemesis, to all.
    Fault {
        kind: String,
    },
    Healed {
        kind: String,
    },
}

pub fn now() -> Moment {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}
