//! Tasks of one process that take turns during a whole measurement.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::Result;
use super::design::{Design, for_tasks};

/// A crew of tasks. The tasks do not stop between two measurements, so that each measurement is in
/// the middle of a long run.
pub struct Crew {
    tasks: JoinSet<Result<()>>,
    done: Done,
}

/// The work of all tasks so far.
#[derive(Clone)]
struct Done {
    /// A local semaphore. Each turn that ends adds one permit.
    turns: Arc<Semaphore>,
    /// The actual time of work in ns, which exceeds the planned time, because timers end late.
    work: Arc<AtomicU64>,
}

impl Crew {
    /// Starts tasks that acquire, work for this time, release, and begin again.
    pub async fn start<D: Design>(design: D, tasks: usize, work: Duration) -> Result<Self> {
        let designs = for_tasks(&design, tasks).await?;
        let done = Done { turns: Arc::new(Semaphore::new(0)), work: Arc::default() };
        let tasks = designs.into_iter().map(|design| take_turns(design, work, done.clone()));
        Ok(Self { tasks: tasks.collect(), done })
    }

    /// Returns how long the crew takes for this many further turns.
    pub async fn time(&mut self, turns: u64) -> Result<Duration> {
        self.done.turns.forget_permits(usize::MAX);
        let started = Instant::now();
        let all_taken = self.done.turns.acquire_many(u32::try_from(turns)?);
        tokio::select! {
            all_taken = all_taken => all_taken?.forget(),
            Some(ended) = self.tasks.join_next() => ended??,
        }
        Ok(started.elapsed())
    }

    /// Returns how long all tasks have worked so far.
    pub fn worked(&self) -> Duration {
        Duration::from_nanos(self.done.work.load(Ordering::Relaxed))
    }
}

async fn take_turns<D: Design>(mut design: D, work: Duration, done: Done) -> Result<()> {
    loop {
        let permit = design.acquire().await?;
        if !work.is_zero() {
            let begun = Instant::now();
            tokio::time::sleep(work).await;
            done.work.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
        design.release(permit).await?;
        done.turns.add_permits(1);
    }
}
