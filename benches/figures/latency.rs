//! P1: one task, acquire and release in sequence.

use std::time::Instant;

use crate::figure::{Better, Figure};
use crate::rounds::{Rounds, median, micros, rounds_of};
use crate::support::Result;
use crate::support::floor::{self, Floor};
use crate::support::server::{semaphores, unique_name};

const ROUNDS: usize = 11;
const PAIRS: usize = 400;

pub async fn p1() -> Result<Figure> {
    let mut floor = Floor::connect().await?;
    let semaphore = semaphores().await?.semaphore(unique_name("p1")).limit(1000).build()?;
    let id = floor::id();
    let mut rounds = Rounds::default();
    for _ in 0..rounds_of(ROUNDS) {
        let (mut floors, mut values) = (Vec::new(), Vec::new());
        for _ in 0..PAIRS {
            let start = Instant::now();
            floor.pair(&id).await?;
            floors.push(micros(start.elapsed()));
            let start = Instant::now();
            semaphore.acquire().await?.release().await?;
            values.push(micros(start.elapsed()));
        }
        rounds.add(median(&mut floors), median(&mut values));
    }
    let (medians, ratio) = rounds.medians();
    Ok(Figure::new(
        "P1",
        "one task: acquire + release, p50",
        "us",
        medians,
        ratio,
        Better::AtMost(1.12),
    ))
}
