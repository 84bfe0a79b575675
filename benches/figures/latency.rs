//! P1: one task that acquires and releases in sequence. N6: the task of P1 over a network.

use std::time::{Duration, Instant};

use redis_semaphore::{Semaphore, SemaphoreClient};

use crate::network::{FAR, NEAR, steady_network};
use crate::support::Result;
use crate::support::baseline::Baseline;
use crate::support::figure::Figure;
use crate::support::rounds::{Rounds, median, micros, rounds_of};
use crate::support::server::{semaphores, unique_name};

const ROUNDS: usize = 11;
const PAIRS: usize = 400;
const PAIRS_OVER_NETWORK: usize = 20;
/// The time that a cycle over a network may take in addition to its two round trips, in µs. The
/// figure P1 shows how long a cycle takes without a network.
const BEYOND: f64 = 120.0;

pub async fn p1() -> Result<Vec<Figure>> {
    let baseline = Baseline::connect().await?;
    let semaphore = semaphores().await?.semaphore(unique_name("p1")).limit(1000).build()?;
    let rounds = tokio::spawn(in_turns(baseline, semaphore, PAIRS)).await??;
    let what = "one task: acquire + release, p50";
    Ok(vec![Figure::of("P1", what, "us", &rounds).ratio_at_most(1.12)])
}

pub async fn n6() -> Result<Vec<Figure>> {
    let (near, far) = (over_network(NEAR).await?, over_network(FAR).await?);
    let near = Figure::new("N6", "1 ms one way: one task: acquire + release, p50", "us", near);
    let far = Figure::new("N6a", "10 ms one way: one task: acquire + release, p50", "us", far);
    let two_trips = near.baseline;
    Ok(vec![near.value_at_most(two_trips + BEYOND), far])
}

/// Returns the medians of the baseline and of the crate.
async fn over_network(one_way: Duration) -> Result<(f64, f64)> {
    let (_network, client) = steady_network(one_way)?;
    let baseline = Baseline::at(&client).await?;
    let semaphores = SemaphoreClient::builder().connect_client(client).await?;
    let semaphore = semaphores.semaphore(unique_name("n6")).limit(1000).build()?;
    let rounds = tokio::spawn(in_turns(baseline, semaphore, PAIRS_OVER_NETWORK)).await??;
    Ok(rounds.medians().0)
}

/// Measures cycles of calls that do nothing, and acquire/release cycles. The caller runs this
/// function in a task, as a program does: see `support/pairs.rs`.
async fn in_turns(mut baseline: Baseline, semaphore: Semaphore, pairs: usize) -> Result<Rounds> {
    let mut rounds = Rounds::default();
    for _ in 0..rounds_of(ROUNDS) {
        let (mut baselines, mut values) = (Vec::new(), Vec::new());
        for _ in 0..pairs {
            let start = Instant::now();
            baseline.acquire().await?;
            baseline.release().await?;
            baselines.push(micros(start.elapsed()));
            let start = Instant::now();
            semaphore.acquire().await?.release().await?;
            values.push(micros(start.elapsed()));
        }
        rounds.add((median(&mut baselines), median(&mut values)));
    }
    Ok(rounds)
}
