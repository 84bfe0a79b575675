//! One task that acquires and releases without contention.

use std::time::{Duration, Instant};

use super::Result;
use super::design::Design;

/// Returns the time for this many consecutive cycles. The cycles run in a task, as in a program.
/// Outside a task, each reply would have to wake the main thread.
pub async fn time_pairs<D: Design>(design: &D, pairs: u64) -> Result<Duration> {
    let mut design = design.for_task().await?;
    let task = tokio::spawn(async move {
        let started = Instant::now();
        for _ in 0..pairs {
            let permit = design.acquire().await?;
            design.release(permit).await?;
        }
        Ok(started.elapsed())
    });
    task.await?
}
