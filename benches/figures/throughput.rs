//! P2: many tasks of one process, without contention. N5: the tasks of P2 over a network. C: many
//! clients with one task each, whose requests are not batched.

use std::time::{Duration, Instant};

use redis::Client;
use redis_semaphore::SemaphoreClient;
use serde_json::json;
use tokio::task::JoinSet;

use crate::network::{NEAR, steady_network};
use crate::support::Result;
use crate::support::baseline::Baseline;
use crate::support::design::{Design, for_tasks};
use crate::support::figure::Figure;
use crate::support::ours::Ours;
use crate::support::rounds::{Rounds, rounds_of};
use crate::support::server::{client, unique_name};

const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(500);
/// The delay in one direction within a data center.
const NEXT_DOOR: Duration = Duration::from_micros(100);

pub async fn p2() -> Result<Vec<Figure>> {
    let here = client()?;
    Ok(vec![
        figure("P2", "256 tasks: cycles of acquire and release", &here, 256, 2.0).await?,
        figure("P2a", "16 tasks: cycles of acquire and release", &here, 16, 0.9).await?,
        figure("P2b", "2,048 tasks: cycles of acquire and release", &here, 2048, 2.5).await?,
    ])
}

pub async fn n5() -> Result<Vec<Figure>> {
    let (_network, near) = steady_network(NEAR)?;
    let (_shorter_network, next_door) = steady_network(NEXT_DOOR)?;
    Ok(vec![
        figure("N5", "1 ms one way: 256 tasks, none waits: cycles", &near, 256, 1.0).await?,
        figure("N5a", "1 ms one way: 16 tasks, none waits: cycles", &near, 16, 0.96).await?,
        figure("N5b", "0.1 ms one way: 16 tasks, none waits: cycles", &next_door, 16, 0.9).await?,
    ])
}

async fn figure(
    id: &'static str,
    what: &'static str,
    client: &Client,
    tasks: usize,
    target: f64,
) -> Result<Figure> {
    let baseline = Baseline::at(client).await?;
    let semaphores = SemaphoreClient::builder().connect_client(client.clone()).await?;
    let semaphore = semaphores.semaphore(unique_name(id)).limit(1_000_000).build()?;
    let (baselines, ours) =
        (for_tasks(&baseline, tasks).await?, for_tasks(&Ours { semaphore }, tasks).await?);
    Ok(Figure::of(id, what, "/s", &in_turns(&baselines, &ours).await?).ratio_at_least(target))
}

pub async fn clients() -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for clients in [16, 128] {
        let (mut baselines, mut ours) = (Vec::new(), Vec::new());
        let name = unique_name("clients");
        for _ in 0..clients {
            baselines.push(Baseline::connect().await?);
            ours.push(Ours::open(&name, 1_000_000).await?);
        }
        let rounds = in_turns(&baselines, &ours).await?;
        let figure = Figure::of("C", format!("{clients} clients: cycles"), "/s", &rounds);
        figures.push(figure.with_details(json!({ "clients": clients }))?);
    }
    Ok(figures)
}

async fn in_turns(baselines: &[Baseline], ours: &[Ours]) -> Result<Rounds> {
    let mut rounds = Rounds::default();
    for _ in 0..rounds_of(ROUNDS) {
        rounds.add((per_second(baselines).await?, per_second(ours).await?));
    }
    Ok(rounds)
}

/// Returns the number of cycles per second of all tasks. Each design has one task.
async fn per_second<D: Design>(designs: &[D]) -> Result<f64> {
    let start = Instant::now();
    let mut running = JoinSet::new();
    for design in designs {
        running.spawn(pairs(design.for_task().await?, start + ROUND));
    }
    let mut done = 0;
    while let Some(count) = running.join_next().await {
        done += count??;
    }
    Ok(f64::from(done) / start.elapsed().as_secs_f64())
}

/// Returns the number of cycles of one task.
async fn pairs<D: Design>(mut design: D, end: Instant) -> Result<u32> {
    let mut done = 0;
    while Instant::now() < end {
        let permit = design.acquire().await?;
        design.release(permit).await?;
        done += 1;
    }
    Ok(done)
}
