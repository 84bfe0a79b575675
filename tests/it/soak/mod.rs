//! A campaign: several processes share several semaphores, while a nemesis does what it can to
//! them. Then a checker judges what they believed.
//!
//! In the environment: `SOAK_SECONDS` for how long, `SOAK_SEED` with which plan of faults, and
//! files to write: `SOAK_LOG` the history, an event a line; `SOAK_TIMELINE` a picture of it, SVG;
//! `SOAK_JSON` the outcome, with that in the file `SOAK_EARLIER` added to it. `scripts/soak` sets
//! them.

mod beliefs;
mod campaign;
mod checker;
mod circumstances;
mod client;
#[cfg(feature = "metrics")]
mod counts;
mod crew;
mod faults;
mod history;
mod report;
mod stalls;
mod theatre;
mod timeline;
mod watcher;

use std::ops::Range;
use std::time::Duration;

const LEASE: Duration = Duration::from_millis(1500);
const LIVENESS: Duration = Duration::from_millis(3000);
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
    /// The limit is changed at run time, and permits are consumed.
    changes: bool,
    /// In each process.
    tasks: usize,
    /// How long permits are held, in ms; and one in so many for longer.
    work: Range<u64>,
    long_work: (u32, Range<u64>),
}

/// Three that are quick, for many turns; and a slow one, so that some always hold for several
/// leases, and wait for long.
const KINDS: [Kind; 4] = [
    Kind {
        name: "plain",
        limit: 3,
        heaviest: 1,
        changes: false,
        tasks: 4,
        work: 1..15,
        long_work: (200, 300..1500),
    },
    Kind {
        name: "weighted",
        limit: 5,
        heaviest: 3,
        changes: false,
        tasks: 4,
        work: 1..15,
        long_work: (200, 300..1500),
    },
    Kind {
        name: "changing",
        limit: 4,
        heaviest: 2,
        changes: true,
        tasks: 4,
        work: 1..15,
        long_work: (200, 300..1500),
    },
    Kind {
        name: "slow",
        limit: 5,
        heaviest: 1,
        changes: false,
        tasks: 3,
        work: 100..900,
        long_work: (5, 2500..4500),
    },
];

impl Kind {
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
