//! What a process tells of its page, and what comes of all of them.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::database::Database;
use crate::start::Result;
use crate::sweep;

/// Times are in microseconds.
#[derive(Serialize, Deserialize)]
pub struct Report {
    /// From the start until it was let in, connecting included.
    waited: u64,
    /// By the clock of the machine.
    began: u64,
    ended: u64,
    sum: i64,
}

impl Report {
    /// Queries the page, now that this process is let in.
    pub async fn of_query(database: &Database, page: u32, asked: Instant) -> Result<Self> {
        let waited = asked.elapsed().as_micros() as u64;
        let began = now()?;
        let sum = database.sum_of(page).await?;
        Ok(Self { waited, began, ended: now()?, sum })
    }
}

fn now() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros() as u64)
}

pub fn summary(reports: &[Report]) -> String {
    let sum: i64 = reports.iter().map(|report| report.sum).sum();
    let waits = || reports.iter().map(|report| Duration::from_micros(report.waited));
    let mean = waits().sum::<Duration>() / reports.len().max(1) as u32;
    let longest = waits().max().unwrap_or_default();
    let began = reports.iter().map(|report| report.began).min().unwrap_or_default();
    let ended = reports.iter().map(|report| report.ended).max().unwrap_or_default();
    let most = sweep::most_at_once(reports.iter().map(|report| (report.began, report.ended)));
    format!(
        "{} pages in {} ms, sum {sum}; waited {} ms on average, {} ms at most; at most {most} at once",
        reports.len(),
        (ended - began) / 1000,
        mean.as_millis(),
        longest.as_millis()
    )
}
