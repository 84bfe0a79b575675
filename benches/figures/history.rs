//! P11: the cost of a grant and of a handoff after an hour of mixed leases and weights, compared
//! with a new semaphore whose leases were all equally long. The bench starts its own server, and
//! advances the clock of that server instead of waiting for an hour.

use redis::Client;
use test_support::server::Server;

use crate::calls::{Calls, Case, LEASE, NO_LIMIT};
use crate::support::Result;
use crate::support::figure::Figure;
use crate::support::rounds::{Rounds, rounds_of};
use crate::support::scripts::{GRANTED, Scripts};
use crate::support::server::unique_name;

const ROUNDS: usize = 9;
const MINUTES: i64 = 60;
const MINUTE: i64 = 60_000_000; // µs
const HOUR: u32 = 3_600_000; // ms
const LONG: u32 = 600_000; // ms, longer than the measured leases
/// Leases of different lengths. Some designs have a fast path that ends permanently when leases
/// differ.
const LEASES: [u32; 4] = [10_000, LEASE, LONG, HOUR];
/// The number of holders during the measurement. With this number, a script that examines each
/// holder would be visibly slower.
const STANDING: usize = 100;

pub async fn p11() -> Result<Vec<Figure>> {
    let server = Server::start();
    let mut calls = Calls::to(&Client::open(server.admin_url())?).await?;
    let mut used = calls.semaphore("used");
    for minute in 0..MINUTES {
        for (weight, lease) in (1..).zip(LEASES) {
            // Half of the permits are released, and the leases of the others expire.
            let ids = calls.ids(20, weight, lease);
            used.acquire(NO_LIMIT, &ids, GRANTED).await?;
            used.release(&ids[..10]).await?;
        }
        server.clock.run_ahead_by((minute + 1) * MINUTE);
    }
    // All permits of that hour have expired. The next measurement has holders with long leases.
    server.clock.run_ahead_by((2 * MINUTES + 1) * MINUTE);
    let beside_long = measure(&mut calls, &mut used, LONG).await?;
    // The long leases have expired, too. Both semaphores now have equal leases.
    server.clock.run_ahead_by((2 * MINUTES + 12) * MINUTE);
    let afterwards = measure(&mut calls, &mut used, LEASE).await?;
    let worse = |(one, other): (Figure, Figure)| if one.ratio > other.ratio { one } else { other };
    Ok(beside_long.into_iter().zip(afterwards).map(worse).collect())
}

/// Measures a new semaphore, and the used semaphore. The leases of the used semaphore's holders
/// last `standing` ms.
async fn measure(calls: &mut Calls, used: &mut Scripts, standing: u32) -> Result<Vec<Figure>> {
    let mut fresh = calls.semaphore(&unique_name("fresh"));
    fresh.acquire(NO_LIMIT, &calls.ids(STANDING, 1, LEASE), GRANTED).await?;
    used.acquire(NO_LIMIT, &calls.ids(STANDING, 1, standing), GRANTED).await?;
    let grants = Case::Grants { weight: 1, in_a_call: 1 };
    let mut measured = Vec::new();
    for (id, what, case) in [
        ("P11", "server time of a grant, new or after an hour", grants),
        ("P11a", "server time of a handoff, new or after an hour", Case::HandOffs),
    ] {
        let mut rounds = Rounds::default();
        for _ in 0..rounds_of(ROUNDS) {
            let time = calls.time(&mut fresh, STANDING as u64, case).await?;
            rounds.add((time, calls.time(used, STANDING as u64, case).await?));
        }
        measured.push(Figure::of(id, what, "us", &rounds).ratio_at_most(1.1));
    }
    Ok(measured)
}
