//! A randomized fault-injection test: several processes share several semaphores, while a nemesis
//! injects faults. A checker then judges the history of what the processes believed.
//!
//! Environment variables, which `scripts/soak` sets:
//!
//! - `SOAK_SECONDS`: the duration
//! - `SOAK_SEED`: the seed of the plan of faults
//! - `SOAK_LOG`: a file for the history, one event on each line
//! - `SOAK_TIMELINE`: a file for a picture of the history, as SVG
//! - `SOAK_JSON`: a file for the result, to which the result in the file `SOAK_EARLIER` is added
//! - `SOAK_TOPOLOGY`: the text at the beginning of each line of progress

mod beliefs;
mod campaign;
mod checker;
mod circumstances;
mod client;
mod counts;
mod crew;
mod faults;
mod history;
mod report;
mod stalls;
mod tickets;
mod timeline;
mod topology;
mod watcher;

use std::ops::Range;
use std::time::Duration;

const LEASE: Duration = Duration::from_millis(1500);
const HEARTBEAT_TIMEOUT: Duration = Duration::from_millis(3000);
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);
/// The time for which requests may still wait at the end of the test run.
const DRAIN: Duration = Duration::from_secs(15);

/// The cap of each group. The share of a group is its number; 0 means that a request has no group.
const GROUP_CAP: u32 = 2;
const GROUPS: u32 = 3;

#[derive(Debug)]
struct Kind {
    name: &'static str,
    limit: u32,
    /// The largest weight of a request. The smallest is 1.
    heaviest: u32,
    special: Special,
    tasks: usize,
    /// The time for which permits are held, in ms. `long_work` contains N and a longer time: one of
    /// N permits is held for that time.
    work: Range<u64>,
    long_work: (u32, Range<u64>),
}

/// Additional actions on a semaphore's permits.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Special {
    Nothing,
    /// The runtime limit changes, and permits are forgotten.
    Changes,
    Passes,
    Leaves,
    /// Several such semaphores are acquired in one call.
    OfSet,
    /// Most requests have a group.
    Groups,
}

/// Quick semaphores provide many turns. On the semaphore "slow", one of five permits is held for
/// 1.7 to 3 leases, so that permits are refreshed while other processes wait for a long time.
const KINDS: [Kind; 9] = [
    Kind::quick("plain", 3, 1, Special::Nothing, 4),
    Kind::quick("weighted", 5, 3, Special::Passes, 4),
    Kind::quick("changing", 4, 2, Special::Changes, 4),
    Kind {
        name: "slow",
        limit: 5,
        heaviest: 1,
        special: Special::Nothing,
        tasks: 3,
        work: 100..900,
        long_work: (5, 2500..4500),
    },
    Kind {
        name: "starts",
        limit: 6,
        heaviest: 1,
        special: Special::Leaves,
        tasks: 2,
        work: 100..400,
        long_work: (10, 400..1500),
    },
    Kind::quick("one", 1, 1, Special::OfSet, 0),
    Kind::quick("two", 1, 1, Special::OfSet, 0),
    Kind::quick("three", 2, 1, Special::OfSet, 0),
    Kind::quick("groups", 5, 2, Special::Groups, 4),
];

impl Kind {
    const fn quick(
        name: &'static str,
        limit: u32,
        heaviest: u32,
        special: Special,
        tasks: usize,
    ) -> Self {
        Self { name, limit, heaviest, special, tasks, work: 1..15, long_work: (200, 300..1500) }
    }

    fn is_quick(&self) -> bool {
        self.work.end < 100
    }
}

const ROLE: &str = "REDIS_SEMAPHORE_SOAK_CLIENT";

/// The code of the client processes, which is not a test.
#[test]
fn child_process_runs_a_soak_client() {
    if let Ok(orders) = std::env::var(ROLE) {
        client::run(&serde_json::from_str(&orders).unwrap());
    }
}
