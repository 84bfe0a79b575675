//! P11: what a grant and a hand-off cost after an hour of mixed leases and weights, beside a
//! semaphore that is new and has seen one length of leases only. The hour passes on a server of its
//! own, whose clock is moved on.

use redis::Client;
use test_support::server::Server;

use crate::calls::{Calls, Case, LEASE};
use crate::support::Result;
use crate::support::figure::{Better, Figure};
use crate::support::rounds::{Rounds, rounds_of};
use crate::support::server::unique_name;

const ROUNDS: usize = 9;
const MINUTES: i64 = 60;
const MINUTE: i64 = 60_000_000; // µs
const HOUR: u32 = 3_600_000; // ms
const LONG: u32 = 600_000; // ms, longer than the leases that are measured
/// Some of them longer than others, as ends the quick way of many a design for good.
const LEASES: [u32; 4] = [10_000, LEASE, LONG, HOUR];
/// Who holds while it is measured: so many that a look at each of them would show.
const STANDING: u64 = 100;
const USED: &str = "used";

pub async fn p11() -> Result<Vec<Figure>> {
    let server = Server::start();
    let mut calls = Calls::to(&Client::open(server.admin_url())?).await?;
    for minute in 0..MINUTES {
        for (weight, lease) in (1..).zip(LEASES) {
            // Half of them are given back, the others' leases end.
            let ids = calls.hold(USED, 20, weight, lease).await?;
            calls.give_back(USED, &ids[..10]).await?;
        }
        server.clock.run_ahead_by((minute + 1) * MINUTE);
    }
    // All that was granted in that hour has ended. It goes on with long leases.
    server.clock.run_ahead_by((2 * MINUTES + 1) * MINUTE);
    let beside_long = measure(&mut calls, LONG).await?;
    // Those have ended, too, and it has the same leases as the new one.
    server.clock.run_ahead_by((2 * MINUTES + 12) * MINUTE);
    let afterwards = measure(&mut calls, LEASE).await?;
    let worse = |(one, other): (Figure, Figure)| if one.ratio > other.ratio { one } else { other };
    Ok(beside_long.into_iter().zip(afterwards).map(worse).collect())
}

/// The used one, where leases of so many ms stand, beside a new one.
async fn measure(calls: &mut Calls, standing: u32) -> Result<Vec<Figure>> {
    let fresh = unique_name("fresh");
    calls.hold(&fresh, STANDING, 1, LEASE).await?;
    calls.hold(USED, STANDING, 1, standing).await?;
    let grants = Case::Grants { weight: 1, in_a_call: 1 };
    let mut measured = Vec::new();
    for (id, what, case) in [
        ("P11", "server time of a grant, new or after an hour", grants),
        ("P11a", "server time of a hand-off, new or after an hour", Case::HandOffs),
    ] {
        let mut rounds = Rounds::default();
        for _ in 0..rounds_of(ROUNDS) {
            let fresh = calls.time(&fresh, STANDING, case).await?;
            rounds.add(fresh, calls.time(USED, STANDING, case).await?);
        }
        let (medians, ratio) = rounds.medians();
        measured.push(Figure::new(id, what, "us", medians, ratio, Better::AtMost(1.1)));
    }
    Ok(measured)
}
