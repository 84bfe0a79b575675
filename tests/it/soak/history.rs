//! The history: what the clients believed, and which faults were injected, all with the time of one
//! clock.

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Nanoseconds on the system's monotonic clock, which all processes of a machine share.
pub type Moment = u64;

/// The process number of the nemesis, which injects the faults. Its events concern all processes.
pub const ALL: u32 = 0;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub at: Moment,
    /// The number of the process. The process that replaces a killed process has another number.
    pub process: u32,
    pub what: What,
}

impl Event {
    /// Returns whether the event belongs to a turn that the text names. Also returns true for an
    /// event that belongs to no turn, unless the event reports a change of a queue.
    pub fn is_about(&self, text: &str) -> bool {
        let what = serde_json::to_value(&self.what).unwrap();
        let of_turn = what.as_object().and_then(|what| what.values().next()?.get("turn"));
        match of_turn {
            Some(turn) => text.contains(&format!("{}/{turn}", self.process)),
            None => !matches!(self.what, What::Queued { .. } | What::Left { .. }),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    Acquire,
    AcquireTimeout,
    TryAcquire,
    /// An acquire that is dropped soon.
    DroppedAcquire,
    HeadStart,
    AcquireAll,
    /// An adoption of a permit that another process has or had.
    Adopt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// `try_acquire` found no free permit.
    Refused,
    TimedOut,
    Dropped,
    Failed,
}

/// The counts of a process for one semaphore, from the metrics of the crate.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Permits by their origin: granted immediately, granted from the queue, or adopted. Only
    /// grants from the queue have a wait time.
    pub immediate: u64,
    pub waited: u64,
    pub adopted: u64,
    pub wait_times: u64,
    pub refused: u64,
    pub timed_out: u64,
    pub cancelled: u64,
    pub failed: u64,
    pub hold_times: u64,
    pub lost: u64,
    /// The gauges at the end.
    pub held: i64,
    pub waiting: i64,
    /// Sums in seconds.
    pub wait_time: f64,
    pub hold_time: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    Release,
    /// A release whose future is dropped soon.
    DroppedRelease,
    Drop,
    Forget,
    /// The permit is detached, so that another process can adopt it.
    Pass,
    /// `let_expire` is called.
    Leave,
    /// `let_expire` is called, and its future is dropped soon.
    DroppedLeave,
    /// The permit is dropped, and is left to expire.
    LeavingDrop,
}

impl How {
    /// Returns whether the permit stays taken until its lease expires.
    pub fn leaves(self) -> bool {
        matches!(self, Self::Leave | Self::DroppedLeave | Self::LeavingDrop)
    }
}

/// An event. A turn is one acquire and its result. Each process numbers its turns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// The process requests a permit, with a head start in ns. The group 0 means that the request
    /// has no group.
    Asks {
        turn: u64,
        semaphore: usize,
        weight: u64,
        group: u32,
        call: Call,
        ahead: Moment,
    },
    /// The process holds a permit. As far as the client knows, the lease expires at `until`.
    Holds {
        turn: u64,
        semaphore: usize,
        token: u64,
        until: Moment,
        id: String,
    },
    /// The lease was refreshed. `by_hand` is set if the client called `refresh`.
    Refreshed {
        turn: u64,
        until: Moment,
        by_hand: bool,
    },
    /// The process found out that the permit is lost.
    Lost {
        turn: u64,
    },
    /// The request ended without a permit.
    GivesUp {
        turn: u64,
        why: Why,
    },
    /// A call failed. If the call was a request, the turn has ended. An outage excuses some errors.
    Failed {
        turn: u64,
        operation: String,
        error: String,
        excusable: bool,
    },
    /// The process starts to release the permit, and no longer uses it.
    Releases {
        turn: u64,
        how: How,
    },
    /// The result of the release: whether the permit was still held.
    Released {
        turn: u64,
        held: bool,
    },
    /// The process offers the permit to other processes, and may still hold the permit.
    Offers {
        turn: u64,
        detached: String,
    },
    /// The process no longer has the permit. The event contains whether the permit was lost by this
    /// moment.
    Gone {
        turn: u64,
        lost: bool,
    },
    /// The process has ended normally, and these are its counts.
    Counted {
        semaphore: usize,
        counts: Counts,
        /// Whether the tasks report everything that these counts include.
        is_all_reported: bool,
    },
    /// The nemesis starts to set this limit. If it clears the limit, this value is the declared
    /// limit.
    SetsLimit {
        semaphore: usize,
        limit: u64,
    },
    LimitIs {
        semaphore: usize,
        limit: u64,
    },
    /// Permits with tokens up to `token` may have been lost on the server between `since` and now.
    /// The holders of these permits find out at their next refresh.
    Unsettled {
        semaphore: usize,
        since: Moment,
        token: u64,
    },
    /// At a moment between `since` and now, the server's clock was set ahead of the history's clock
    /// by `ahead` ns.
    ClockIs {
        since: Moment,
        ahead: i64,
    },
    Killed,
    Stopped,
    Continued,
    /// The nemesis injects a fault that may affect all processes. `spoils_order` is set if waiters
    /// may lose their positions.
    Fault {
        kind: String,
        spoils_order: bool,
    },
    Undone {
        kind: String,
    },
    /// All processes work again.
    Healed {
        kind: String,
    },
    /// From `since` until now, the machine did not run this process, although the process was ready
    /// to run. The nemesis contains the proxy, so while the nemesis does not run, the network
    /// between clients and server may stand still, too.
    Stalled {
        since: Moment,
    },
    /// These IDs are in a queue on the server, and were not in it at the previous inspection.
    Queued {
        ids: Vec<String>,
    },
    /// These IDs are no longer in the queue. They were still in it at `until`.
    Left {
        ids: Vec<String>,
        until: Moment,
    },
    /// The server took this long to reply.
    Slow {
        since: Moment,
    },
    /// Between `since` and now, a call did not get a permit that this process had given up before
    /// the call.
    Overtaken {
        since: Moment,
    },
    /// The test run itself has found this violation.
    Found {
        rule: String,
        what: String,
    },
}

pub fn now() -> Moment {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}
