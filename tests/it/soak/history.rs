//! What happened: what the clients believed, and what was done to them, on one clock.

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Nanoseconds on the system's monotonic clock, which all processes of a machine share.
pub type Moment = u64;

/// The nemesis, where a process is asked for: what it says concerns all.
pub const ALL: u32 = 0;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub at: Moment,
    /// A process that was killed never comes back: the one in its place has another number.
    pub process: u32,
    pub what: What,
}

impl Event {
    /// Whether this is of a turn that the text names, or something that was done to turns.
    pub fn is_about(&self, text: &str) -> bool {
        let what = serde_json::to_value(&self.what).unwrap();
        let of_turn = what.as_object().and_then(|what| what.values().next()?.get("turn"));
        match of_turn {
            Some(turn) => text.contains(&format!("{}/{turn}", self.process)),
            None => !matches!(self.what, What::Queued { .. } | What::Left { .. }),
        }
    }
}

/// How a permit is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    Acquire,
    AcquireTimeout,
    TryAcquire,
    /// An acquire that is dropped before long.
    DroppedAcquire,
    /// One that goes before others.
    HeadStart,
    /// Together with permits of other semaphores.
    AcquireAll,
    /// Of a permit that somebody else has or had.
    Adopt,
}

/// Why nothing came of asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// A try found no permit free.
    Refused,
    TimedOut,
    /// The call was dropped.
    Dropped,
    Failed,
}

/// What a process counted for one semaphore, by the metrics of the crate.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Permits, by how they came: at once, from the queue, or from another process. Those from the
    /// queue have a time.
    pub immediate: u64,
    pub waited: u64,
    pub adopted: u64,
    pub wait_times: u64,
    pub refused: u64,
    pub timed_out: u64,
    pub cancelled: u64,
    pub failed: u64,
    /// Permits that have ended.
    pub hold_times: u64,
    pub lost: u64,
    /// What is left at the end.
    pub held: i64,
    pub waiting: i64,
    /// In seconds, all together.
    pub wait_time: f64,
    pub hold_time: f64,
}

/// How a permit is given back.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    Release,
    /// A release whose future is dropped before long.
    DroppedRelease,
    Drop,
    Forget,
    /// To whoever adopts it.
    Pass,
    /// To its lease, ...
    Leave,
    /// ... by a future that is dropped before long, ...
    DroppedLeave,
    /// ... or by dropping the permit.
    LeavingDrop,
}

impl How {
    /// Whether the permit takes its place until its lease ends.
    pub fn leaves(self) -> bool {
        matches!(self, Self::Leave | Self::DroppedLeave | Self::LeavingDrop)
    }
}

/// A turn is one acquire and what comes of it, numbered by its process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Begins to ask for a permit, with a head start of so many ns.
    Asks {
        turn: u64,
        semaphore: usize,
        weight: u64,
        call: Call,
        ahead: Moment,
    },
    /// Has it, with a lease that lasts until then as far as the client knows.
    Holds {
        turn: u64,
        semaphore: usize,
        token: u64,
        until: Moment,
        id: String,
    },
    /// The lease was renewed; `by_hand` where the client asked for it.
    Renewed {
        turn: u64,
        until: Moment,
        by_hand: bool,
    },
    /// Was told that it is lost.
    Lost {
        turn: u64,
    },
    /// Waits no longer, and has nothing.
    GivesUp {
        turn: u64,
        why: Why,
    },
    /// A call failed; where it was to get the permit, the turn is over. An outage excuses some
    /// errors.
    Failed {
        turn: u64,
        operation: String,
        error: String,
        excusable: bool,
    },
    /// Begins to give it back, and uses it no more.
    Releases {
        turn: u64,
        how: How,
    },
    /// The answer to that: whether it was still held.
    Released {
        turn: u64,
        held: bool,
    },
    /// Tells others how to adopt it, be it still held here or not.
    Offers {
        turn: u64,
        detached: String,
    },
    /// Has the permit no more, in whichever way it ended: whether it was lost by then.
    Gone {
        turn: u64,
        lost: bool,
    },
    /// Has ended in good order, with all that it began, and has counted this.
    Counted {
        semaphore: usize,
        counts: Counts,
        /// Its tasks tell everything that is counted there.
        is_all_told: bool,
    },
    /// Begins to set a limit (or to clear it: then the declared one comes back).
    SetsLimit {
        semaphore: usize,
        limit: u64,
    },
    /// It is in force.
    LimitIs {
        semaphore: usize,
        limit: u64,
    },
    /// Permits with tokens up to this one may have been lost on the server between `since` and now.
    /// Their holders hear of it at their next renewal.
    Unsettled {
        semaphore: usize,
        since: Moment,
        token: u64,
    },
    /// The server's clock is ahead of this one by so many ns, since some moment after that one.
    ClockIs {
        since: Moment,
        ahead: i64,
    },
    /// Something is done to this process alone, ...
    Killed,
    Stopped,
    Continued,
    /// ... or by the nemesis to all. While it lasts waiters may lose their places, if they may.
    Fault {
        kind: String,
        spoils_order: bool,
    },
    /// The fault is over ...
    Undone {
        kind: String,
    },
    /// ... and everybody works again.
    Healed {
        kind: String,
    },
    /// The machine did not run this process since then (or did not run the nemesis, and with it the
    /// way to the server), though it was ready to.
    Stalled {
        since: Moment,
    },
    /// These ids wait in a queue on the server, which was not so when it was last looked at.
    Queued {
        ids: Vec<String>,
    },
    /// These do so no longer. They surely waited until then.
    Left {
        ids: Vec<String>,
        until: Moment,
    },
    /// The server's answer took that long.
    Slow {
        since: Moment,
    },
    /// A call did not see what this process had given up before it, since then.
    Overtaken {
        since: Moment,
    },
    /// The campaign itself has seen that this is wrong.
    Found {
        rule: String,
        what: String,
    },
}

pub fn now() -> Moment {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}
