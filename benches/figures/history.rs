//! P11: what a grant and a hand-off cost after an hour of mixed leases and weights, beside a
//! semaphore that is new. The hour passes on a server of its own, whose clock is moved on.

#[allow(dead_code)] // tests use more of it
#[path = "../../tests/it/support/clock.rs"]
mod clock;
#[path = "../../tests/it/support/preload.rs"]
mod preload;

use redis::Client;

use crate::calls::{Calls, Case};
use crate::support::Result;
use crate::support::figure::{Better, Figure};
use crate::support::own_server::OwnServer;
use crate::support::rounds::{Rounds, rounds_of};
use clock::Clock;

const ROUNDS: usize = 9;
const MINUTES: i64 = 60;
const MINUTE: i64 = 60_000_000; // µs
const HOUR: u32 = 3_600_000; // ms
/// Who holds all the time, in both.
const STANDING: u64 = 10;
/// Some of them longer than others, as ends the quick way of many a design for good.
const LEASES: [u32; 4] = [10_000, 30_000, 600_000, HOUR];

pub async fn p11() -> Result<Vec<Figure>> {
    let folder = std::env::temp_dir().join(crate::support::server::unique_name("clock"));
    std::fs::create_dir(&folder)?;
    let clock = Clock::create(&folder);
    let server = OwnServer::start_with(&[], &[], |command| clock.preload(command))?;
    let mut calls = Calls::to(&Client::open(server.url())?).await?;
    let (fresh, used) = ("fresh", "used");
    for name in [fresh, used] {
        calls.hold(name, STANDING, 1, 3 * HOUR).await?;
    }
    for minute in 0..MINUTES {
        for (weight, lease) in (1..).zip(LEASES) {
            // Half of them are given back, the others' leases end.
            let words = calls.hold(used, 20, weight, lease).await?;
            calls.give_back(used, &words[..10]).await?;
        }
        clock.run_ahead_by((minute + 1) * MINUTE);
    }
    // All that was granted in that hour has ended.
    clock.run_ahead_by((2 * MINUTES + 1) * MINUTE);
    let grants = Case::Grants { weight: 1, in_a_call: 1 };
    let figures = [
        ("P11", "server time of a grant, new or after an hour", grants),
        ("P11a", "server time of a hand-off, new or after an hour", Case::HandOffs),
    ];
    let mut measured = Vec::new();
    for (id, what, case) in figures {
        let mut rounds = Rounds::default();
        for _ in 0..rounds_of(ROUNDS) {
            let fresh = calls.time(fresh, STANDING, case).await?;
            rounds.add(fresh, calls.time(used, STANDING, case).await?);
        }
        let (medians, ratio) = rounds.medians();
        measured.push(Figure::new(id, what, "us", medians, ratio, Better::AtMost(1.1)));
    }
    drop(server);
    std::fs::remove_dir_all(&folder)?;
    Ok(measured)
}
