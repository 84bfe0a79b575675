//! P3 to P6: the utilization, the fairness of the waits, and the number of calls. The limit is 10,
//! and 1,000 tasks work for 5 ms each.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis_semaphore::Semaphore;
use tokio::task::JoinSet;

use crate::support::Result;
use crate::support::figure::{Better, Figure};
use crate::support::rounds::{median, rounds_of};
use crate::support::server::{Server, semaphores, unique_name};

const LIMIT: u32 = 10;
const TASKS: u32 = 1000;
const WORK: Duration = Duration::from_millis(5);
const ROUNDS: usize = 5;
/// The length of a round, in which each task has about six turns.
const ROUND: Duration = Duration::from_secs(4);

/// The turns of a task in a round.
#[derive(Default)]
struct Turns {
    taken: u32,
    held: Duration,
    longest_wait: Duration,
}

struct Round {
    utilisation: f64,
    slowest_wait: f64,
    ideal_wait: f64,
    luckiest: f64,
    unluckiest: f64,
    calls: f64,
}

pub async fn p3_to_p6() -> Result<Vec<Figure>> {
    let semaphores = semaphores().await?;
    let mut rounds = Vec::new();
    for _ in 0..rounds_of(ROUNDS) {
        let semaphore = semaphores.semaphore(unique_name("p3")).limit(LIMIT).build()?;
        rounds.push(round(semaphore).await?);
    }
    let of = |what: fn(&Round) -> f64| median(&mut rounds.iter().map(what).collect::<Vec<_>>());
    let utilisation = of(|round| round.utilisation);
    let waits = (of(|round| round.ideal_wait), of(|round| round.slowest_wait));
    let turns = (of(|round| round.unluckiest), of(|round| round.luckiest));
    let calls = of(|round| round.calls);
    let wait_ratio = of(|round| round.slowest_wait / round.ideal_wait);
    let turn_ratio = of(|round| round.luckiest / round.unluckiest);
    let at_most = Better::AtMost;
    Ok(vec![
        Figure::new(
            "P3",
            "contention: time held of what the limit allows",
            "",
            (1.0, utilisation),
            utilisation,
            Better::AtLeast(0.93),
        ),
        Figure::new(
            "P4",
            "contention: slowest wait against the ideal one",
            "ms",
            waits,
            wait_ratio,
            at_most(1.3),
        ),
        Figure::new(
            "P5",
            "contention: turns of the luckiest and unluckiest task",
            "turns",
            turns,
            turn_ratio,
            at_most(1.5),
        ),
        // Two calls for each turn are not a lower bound, because requests are batched.
        Figure::new(
            "P6",
            "contention: calls for each acquire and release",
            "calls",
            (2.0, calls),
            calls,
            at_most(2.1),
        ),
    ])
}

async fn round(semaphore: Semaphore) -> Result<Round> {
    let mut server = Server::connect()?;
    let semaphore = Arc::new(semaphore);
    let before = server.scripts()?.calls;
    let start = Instant::now();
    let end = start + ROUND;
    let tasks: JoinSet<_> = (0..TASKS).map(|_| take_turns(semaphore.clone(), end)).collect();
    let turns = tasks.join_all().await.into_iter().collect::<Result<Vec<_>>>()?;
    let calls = server.scripts()?.calls - before;

    let held: f64 = turns.iter().map(|turns| turns.held.as_secs_f64()).sum();
    let taken: u32 = turns.iter().map(|turns| turns.taken).sum();
    let slowest = turns.iter().map(|turns| turns.longest_wait).max().unwrap_or_default();
    let counts = || turns.iter().map(|turns| f64::from(turns.taken));
    Ok(Round {
        utilisation: held / (f64::from(LIMIT) * ROUND.as_secs_f64()),
        slowest_wait: slowest.as_secs_f64() * 1e3,
        ideal_wait: f64::from(TASKS) * (held / f64::from(taken)) / f64::from(LIMIT) * 1e3,
        luckiest: counts().fold(0.0, f64::max),
        unluckiest: counts().fold(f64::INFINITY, f64::min),
        calls: calls as f64 / f64::from(taken),
    })
}

/// Takes turns until the round ends. A permit that is still held at the end counts until the end.
async fn take_turns(semaphore: Arc<Semaphore>, end: Instant) -> Result<Turns> {
    let mut turns = Turns::default();
    loop {
        let asked = Instant::now();
        let Ok(permit) = tokio::time::timeout_at(end.into(), semaphore.acquire()).await else {
            return Ok(turns);
        };
        let permit = permit?;
        let granted = Instant::now();
        turns.longest_wait = turns.longest_wait.max(granted - asked);
        tokio::time::sleep(WORK).await;
        turns.held += Instant::now().min(end).saturating_duration_since(granted);
        turns.taken += 1;
        permit.release().await?;
    }
}
