//! Measures the turns of tasks that compete for fewer permits over a network. Compares them with
//! the turns that the network allows.

use std::time::{Duration, Instant};

use super::Result;
use super::baseline::{Baseline, id};
use super::crew::Crew;
use super::design::Design;
use super::rounds::median;

/// The number of turns per task before the count begins.
const WARM_UP: u64 = 3;
/// The number of measurements of the round trip to the server.
const ROUND_TRIPS: usize = 50;

#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub limit: u32,
    pub tasks: usize,
    pub work: Duration,
}

/// Turns per second.
pub struct Turns {
    pub taken: f64,
    /// The turns per second that the network allows. A handoff takes one way to the server and one
    /// way to the next holder, so each permit is idle for a round trip after each turn. The
    /// calculation uses the actual duration of the work.
    pub ideal: f64,
}

impl Load {
    /// Counts turns for about this time, and at least one turn for each permit. `round_trip` is the
    /// round trip to the server.
    pub async fn turns<D: Design>(
        &self,
        design: D,
        round_trip: Duration,
        time: Duration,
    ) -> Result<Turns> {
        let mut crew = Crew::start(design, self.tasks, self.work).await?;
        crew.time(WARM_UP * self.tasks as u64).await?;
        // Turns may end in groups as large as the limit, so counting starts and stops at the end of
        // a group.
        crew.time(1).await?;
        let before = crew.worked();
        let groups = time.as_secs_f64() / (self.work + round_trip).as_secs_f64();
        let turns = u64::from(self.limit) * groups.ceil().max(1.0) as u64;
        let elapsed = crew.time(turns).await?.as_secs_f64();
        let work = (crew.worked() - before).as_secs_f64() / turns as f64;
        let ideal = f64::from(self.limit) / (work + round_trip.as_secs_f64());
        Ok(Turns { taken: turns as f64 / elapsed, ideal })
    }
}

/// Returns the round trip time of a script that does nothing. It is measured in a task, as in a
/// program.
pub async fn round_trip(baseline: &Baseline) -> Result<Duration> {
    let mut baseline = baseline.clone();
    let task = tokio::spawn(async move {
        let (id, mut times) = (id(), Vec::new());
        for _ in 0..ROUND_TRIPS {
            let begun = Instant::now();
            baseline.release(&id).await?;
            times.push(begun.elapsed().as_secs_f64());
        }
        Ok(Duration::from_secs_f64(median(&mut times)))
    });
    task.await?
}
