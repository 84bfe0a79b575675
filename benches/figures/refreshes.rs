//! R: the cost of refreshing the leases of many permits: one call for each 1,000 permits, as in the
//! crate.

use std::time::Instant;

use serde_json::json;

use crate::support::Result;
use crate::support::baseline::Baseline;
use crate::support::figure::Figure;
use crate::support::rounds::{Rounds, micros, rounds_of};
use crate::support::scripts::{Scripts, batches};

const PERMITS: [u64; 3] = [1, 1_000, 10_000];
const ROUNDS: usize = 101;

pub async fn all() -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for permits in PERMITS {
        // The calls run in a task, as in a program.
        let rounds = tokio::spawn(in_turns(permits)).await??;
        let figure = Figure::of("R", format!("{permits} permits: refresh"), "us", &rounds);
        figures.push(figure.with_details(json!({ "permits": permits }))?);
    }
    Ok(figures)
}

async fn in_turns(permits: u64) -> Result<Rounds> {
    let mut baseline = Baseline::connect().await?;
    let mut scripts = Scripts::with_holders(permits).await?;
    let ids: Vec<_> = batches(0..permits).collect();
    let mut rounds = Rounds::default();
    for _ in 0..rounds_of(ROUNDS) {
        let start = Instant::now();
        for batch in &ids {
            baseline.refresh(batch).await?;
        }
        let time_of_baseline = micros(start.elapsed());
        let start = Instant::now();
        for batch in &ids {
            scripts.refresh(batch).await?;
        }
        rounds.add((time_of_baseline, micros(start.elapsed())));
    }
    Ok(rounds)
}
