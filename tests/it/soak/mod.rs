//! A campaign: several processes share several semaphores, while a nemesis does what it can to
//! them. Then a checker judges what they believed.
//!
//! In the environment: `SOAK_SECONDS` for how long, `SOAK_SEED` with which choice of faults, and
//! `SOAK_LOG` where to write the history, an event a line.

mod beliefs;
mod campaign;
mod checker;
mod client;
mod crew;
mod faults;
mod forged;
mod history;

use std::time::Duration;

const LEASE: Duration = Duration::from_millis(1500);
const LIVENESS: Duration = Duration::from_millis(3000);
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);

/// One of the semaphores.
#[derive(Debug)]
struct Kind {
    name: &'static str,
    limit: u32,
    /// Requests weigh from 1 to this.
    heaviest: u32,
    /// The limit is changed at run time.
    changes: bool,
}

const KINDS: [Kind; 3] = [
    Kind { name: "plain", limit: 3, heaviest: 1, changes: false },
    Kind { name: "weighted", limit: 5, heaviest: 3, changes: false },
    Kind { name: "changing", limit: 4, heaviest: 1, changes: true },
];

const ROLE: &str = "REDIS_SEMAPHORE_SOAK_CLIENT";

/// What the processes of a campaign run. By itself it does nothing.
#[test]
fn a_client_of_a_campaign() {
    if let Ok(orders) = std::env::var(ROLE) {
        client::run(&client::Orders::read(&orders));
    }
}
