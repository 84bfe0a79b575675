//! H: the cost of a cycle while many other holders exist. Q: the cost of queuing a request and of a
//! handoff to the first waiter, while many other requests wait. Each cost is measured twice: as the
//! caller's time, and as the server's time for scripts.

use serde_json::json;

use crate::support::Result;
use crate::support::arguments::only_tests;
use crate::support::baseline::Baseline;
use crate::support::design::Design;
use crate::support::designs::blocking_list::BlockingList;
use crate::support::designs::fair::Fair;
use crate::support::designs::locked::Locked;
use crate::support::figure::Figure;
use crate::support::line::Line;
use crate::support::ours::Ours;
use crate::support::pairs::time_pairs;
use crate::support::rounds::{Rounds, micros, rounds_of};
use crate::support::server::{Server, unique_name};

const SIZES: [u64; 6] = [10, 100, 1_000, 10_000, 100_000, 1_000_000];
const ROUNDS: usize = 5;
const PAIRS: u64 = 200;

pub async fn holders() -> Result<Vec<Figure>> {
    let mut figures = among_holders::<Ours>(6).await?;
    // Each acquire of the blocking list copies a set with all holders, so the largest sizes are not
    // measured.
    figures.extend(among_holders::<BlockingList>(4).await?);
    // These designs use transactions, so the time in scripts says nothing.
    let by_transactions = [among_holders::<Fair>(4).await?, among_holders::<Locked>(4).await?];
    figures.extend(by_transactions.into_iter().flatten().step_by(2));
    Ok(figures)
}

pub async fn waiters() -> Result<Vec<Figure>> {
    let mut line = Line::open(&unique_name("crowd"), 1).await?;
    let mut figures = Vec::new();
    for &size in sizes(5) {
        line.fill(size).await?;
        figures.extend(measure("Q", Ours::NAME, &line, size).await?);
    }
    Ok(figures)
}

fn sizes(count: usize) -> &'static [u64] {
    if only_tests() { &SIZES[..2] } else { &SIZES[..count] }
}

async fn among_holders<D: Design>(count: usize) -> Result<Vec<Figure>> {
    let mut design = D::open(&unique_name("crowd"), u32::MAX).await?;
    let (mut figures, mut holders) = (Vec::new(), 0);
    for &size in sizes(count) {
        design.add_holders(holders..size).await?;
        holders = size;
        figures.extend(measure("H", D::NAME, &design, size).await?);
    }
    Ok(figures)
}

/// Measures the time of a cycle: for the caller, and in scripts.
async fn measure<D: Design>(
    id: &'static str,
    name: &str,
    design: &D,
    size: u64,
) -> Result<[Figure; 2]> {
    let (mut server, baseline) = (Server::connect()?, Baseline::connect().await?);
    let (mut caller, mut scripts) = (Rounds::default(), Rounds::default());
    for _ in 0..rounds_of(ROUNDS) {
        let (baseline, of_baseline) = cycle(&mut server, &baseline).await?;
        let (value, of_value) = cycle(&mut server, design).await?;
        caller.add((baseline, value));
        scripts.add((of_baseline, of_value));
    }
    let figure = |place: &str, rounds: &Rounds| {
        let what = format!("{name} among {size}: a cycle, {place}");
        let details = json!({ "design": name, "size": size, "place": place });
        Figure::of(id, what, "us", rounds).with_details(details)
    };
    Ok([figure("caller", &caller)?, figure("scripts", &scripts)?])
}

/// Returns the time of a cycle for the caller, and in scripts, in µs.
async fn cycle<D: Design>(server: &mut Server, design: &D) -> Result<(f64, f64)> {
    let before = server.scripts()?.usec;
    let time = micros(time_pairs(design, PAIRS).await?);
    let in_scripts = (server.scripts()?.usec - before) as f64;
    Ok((time / PAIRS as f64, in_scripts / PAIRS as f64))
}
