//! One task that acquires and releases, with nobody in its way.

use std::time::{Duration, Instant};

use super::Result;
use super::design::Design;

/// How long so many pairs take, one after the other. They run in a task, as in a program; outside
/// of one each answer would have to wake the main thread.
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
