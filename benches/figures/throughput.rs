//! P2: many tasks of one process, without contention. N5: the tasks of P2 over a network.

use std::time::{Duration, Instant};

use redis_semaphore::{Semaphore, SemaphoreClient};
use tokio::task::JoinSet;

use crate::network::NEAR;
use crate::support::Result;
use crate::support::baseline::{self, Baseline};
use crate::support::figure::{Better, Figure};
use crate::support::network::{Network, Way};
use crate::support::rounds::{Rounds, rounds_of};
use crate::support::server::{semaphores, unique_name, url};

const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(500);
/// The delay in one direction within a data center.
const NEXT_DOOR: Duration = Duration::from_micros(100);

pub async fn p2() -> Result<Vec<Figure>> {
    let at = Place { baseline: Baseline::connect().await?, semaphores: semaphores().await? };
    Ok(vec![
        at.figure("P2", "256 tasks: pairs of acquire and release", 256, 2.0).await?,
        at.figure("P2a", "16 tasks: pairs of acquire and release", 16, 0.9).await?,
        at.figure("P2b", "2,048 tasks: pairs of acquire and release", 2048, 2.5).await?,
    ])
}

pub async fn n5() -> Result<Vec<Figure>> {
    let at = Place::behind(NEAR).await?;
    let next_door = Place::behind(NEXT_DOOR).await?;
    Ok(vec![
        at.figure("N5", "1 ms one way: 256 tasks, nobody waits: pairs", 256, 1.0).await?,
        at.figure("N5a", "1 ms one way: 16 tasks, nobody waits: pairs", 16, 0.96).await?,
        next_door.figure("N5b", "0.1 ms one way: 16 tasks, nobody waits: pairs", 16, 0.9).await?,
    ])
}

/// The clients whose cycles are counted.
struct Place {
    baseline: Baseline,
    semaphores: SemaphoreClient,
}

impl Place {
    async fn behind(one_way: Duration) -> Result<Self> {
        let client = Network::to(url()?, Way::of(one_way))?.client()?;
        let baseline = Baseline::at(&client).await?;
        Ok(Self { baseline, semaphores: SemaphoreClient::builder().connect_client(client).await? })
    }

    async fn figure(
        &self,
        id: &'static str,
        what: &'static str,
        tasks: usize,
        target: f64,
    ) -> Result<Figure> {
        let semaphore = self.semaphores.semaphore(unique_name(id)).limit(1_000_000).build()?;
        let mut rounds = Rounds::default();
        for _ in 0..rounds_of(ROUNDS) {
            let baselines =
                per_second(tasks, |end| baseline_pairs(self.baseline.clone(), end)).await?;
            let values = per_second(tasks, |end| pairs(semaphore.clone(), end)).await?;
            rounds.add(baselines, values);
        }
        let (medians, ratio) = rounds.medians();
        Ok(Figure::new(id, what, "/s", medians, ratio, Better::AtLeast(target)))
    }
}

async fn baseline_pairs(mut baseline: Baseline, end: Instant) -> Result<u64> {
    let (id, mut done) = (baseline::id(), 0);
    while Instant::now() < end {
        baseline.pair(&id).await?;
        done += 1;
    }
    Ok(done)
}

async fn pairs(semaphore: Semaphore, end: Instant) -> Result<u64> {
    let mut done = 0;
    while Instant::now() < end {
        semaphore.acquire().await?.release().await?;
        done += 1;
    }
    Ok(done)
}

/// Returns the number of cycles per second of all tasks.
async fn per_second<F>(tasks: usize, pairs_until: impl Fn(Instant) -> F) -> Result<f64>
where
    F: Future<Output = Result<u64>> + Send + 'static,
{
    let start = Instant::now();
    let mut running: JoinSet<_> = (0..tasks).map(|_| pairs_until(start + ROUND)).collect();
    let mut done = 0;
    while let Some(count) = running.join_next().await {
        done += count??;
    }
    Ok(done as f64 / start.elapsed().as_secs_f64())
}
