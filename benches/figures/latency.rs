//! P1: one task that acquires and releases in sequence. N6: the task of P1 over a network.

use std::time::{Duration, Instant};

use redis_semaphore::{Semaphore, SemaphoreClient};

use crate::network::{FAR, NEAR};
use crate::support::Result;
use crate::support::baseline::{self, Baseline};
use crate::support::figure::{Better, Figure};
use crate::support::network::{Network, Way};
use crate::support::rounds::{Rounds, median, micros, rounds_of};
use crate::support::server::{semaphores, unique_name, url};

const ROUNDS: usize = 11;
const PAIRS: usize = 400;
const PAIRS_OVER_NETWORK: usize = 20;
/// The time that a cycle over a network may take in addition to its two round trips, in µs. The
/// figure P1 shows how long a cycle takes without a network.
const BEYOND: f64 = 120.0;

pub async fn p1() -> Result<Figure> {
    let baseline = Baseline::connect().await?;
    let semaphore = semaphores().await?.semaphore(unique_name("p1")).limit(1000).build()?;
    let (medians, ratio) = in_turns(baseline, semaphore, PAIRS).await?.medians();
    let what = "one task: acquire + release, p50";
    Ok(Figure::new("P1", what, "us", medians, ratio, Better::AtMost(1.12)))
}

pub async fn n6() -> Result<Vec<Figure>> {
    Ok(vec![
        far_away("N6", "1 ms one way: one task: acquire + release, p50", NEAR).await?,
        far_away("N6a", "10 ms one way: one task: acquire + release, p50", FAR).await?,
    ])
}

async fn far_away(id: &'static str, what: &'static str, one_way: Duration) -> Result<Figure> {
    let client = Network::to(url()?, Way::of(one_way))?.client()?;
    let baseline = Baseline::at(&client).await?;
    let semaphores = SemaphoreClient::builder().connect_client(client).await?;
    let semaphore = semaphores.semaphore(unique_name(id)).limit(1000).build()?;
    let rounds = in_turns(baseline, semaphore, PAIRS_OVER_NETWORK).await?;
    let (medians @ (two_trips, _), _) = rounds.medians();
    Ok(Figure::of_value(id, what, "us", medians, Better::AtMost(two_trips + BEYOND)))
}

/// Measures cycles of calls that do nothing, and acquire/release cycles. Both run in a task, as in
/// a program: see `support/pairs.rs`.
async fn in_turns(baseline: Baseline, semaphore: Semaphore, pairs: usize) -> Result<Rounds> {
    tokio::spawn(take_turns(baseline, semaphore, pairs)).await?
}

async fn take_turns(mut baseline: Baseline, semaphore: Semaphore, pairs: usize) -> Result<Rounds> {
    let id = baseline::id();
    let mut rounds = Rounds::default();
    for _ in 0..rounds_of(ROUNDS) {
        let (mut baselines, mut values) = (Vec::new(), Vec::new());
        for _ in 0..pairs {
            let start = Instant::now();
            baseline.pair(&id).await?;
            baselines.push(micros(start.elapsed()));
            let start = Instant::now();
            semaphore.acquire().await?.release().await?;
            values.push(micros(start.elapsed()));
        }
        rounds.add(median(&mut baselines), median(&mut values));
    }
    Ok(rounds)
}
