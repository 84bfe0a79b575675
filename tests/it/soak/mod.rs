//! A campaign: several processes share several semaphores, while a nemesis does what it can to
//! them. Then a checker judges what they believed.
//!
//! In the environment: `SOAK_SECONDS` for how long, `SOAK_SEED` with which plan of faults, and
//! files to write: `SOAK_LOG` the history, an event a line; `SOAK_TIMELINE` a picture of it, SVG;
//! `SOAK_JSON` the outcome, with that in the file `SOAK_EARLIER` added to it; and `SOAK_TOPOLOGY`,
//! what each line of its progress begins with. `scripts/soak` sets them.

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
/// How long those who wait when the campaign ends may still wait.
const DRAIN: Duration = Duration::from_secs(15);

/// One of the semaphores.
#[derive(Debug)]
struct Kind {
    name: &'static str,
    limit: u32,
    /// Requests weigh from 1 to this.
    heaviest: u32,
    special: Special,
    /// In each process.
    tasks: usize,
    /// How long permits are held, in ms; and one in so many for longer.
    work: Range<u64>,
    long_work: (u32, Range<u64>),
}

/// What is done to a semaphore's permits besides.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Special {
    Nothing,
    /// The limit is changed at run time, and permits are consumed.
    Changes,
    /// They are passed on to other processes.
    Passes,
    /// They are left to their leases.
    Leaves,
    /// Several of such semaphores are acquired at once.
    OfSet,
}

/// Those that are quick, for many turns; and slow ones, so that some always hold for several
/// leases, and wait for long.
const KINDS: [Kind; 8] = [
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

/// What the processes of a campaign run. By itself it does nothing.
#[test]
fn a_client_of_a_campaign() {
    if let Ok(orders) = std::env::var(ROLE) {
        client::run(&serde_json::from_str(&orders).unwrap());
    }
}
