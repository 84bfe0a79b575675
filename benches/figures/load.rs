//! The turns of tasks that compete over a network for fewer permits than tasks, and the turns that
//! the network allows.

use std::time::Duration;

use redis_semaphore::SemaphoreClient;

use crate::support::Result;
use crate::support::crew::Crew;
use crate::support::design::Design;
use crate::support::ours::Ours;
use crate::support::server::unique_name;

/// The number of turns per task before the count begins.
const WARM_UP: u64 = 3;

#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub limit: u32,
    pub tasks: usize,
    pub work: Duration,
}

pub const TYPICAL: Load = Load { limit: 10, tasks: 100, work: Duration::from_millis(5) };

impl Load {
    /// Returns the possible and the taken turns per second. Counts turns for about `time`, and at
    /// least one turn for each permit. `round_trip` is the round trip to the server.
    ///
    /// A handoff takes one way to the server and one way to the next holder, so each permit is idle
    /// for a round trip after each turn. The calculation uses the actual duration of the work.
    pub async fn turns<D: Design>(
        &self,
        design: D,
        round_trip: Duration,
        time: Duration,
    ) -> Result<(f64, f64)> {
        let mut crew = Crew::start(design, self.tasks, self.work).await?;
        crew.time(WARM_UP * self.tasks as u64).await?;
        // Turns may end in groups as large as the limit, so counting starts and stops at the same
        // point of a group.
        crew.time(1).await?;
        let before = crew.worked();
        let groups = time.as_secs_f64() / (self.work + round_trip).as_secs_f64();
        let turns = u64::from(self.limit) * groups.ceil().max(1.0) as u64;
        let elapsed = crew.time(turns).await?.as_secs_f64();
        let work = (crew.worked() - before).as_secs_f64() / turns as f64;
        let possible = f64::from(self.limit) / (work + round_trip.as_secs_f64());
        Ok((possible, turns as f64 / elapsed))
    }

    /// Measures this crate's semaphore like `turns`, and then disconnects the client.
    pub async fn turns_of_ours(
        &self,
        semaphores: SemaphoreClient,
        round_trip: Duration,
        time: Duration,
    ) -> Result<(f64, f64)> {
        let semaphore = semaphores.semaphore(unique_name("load")).limit(self.limit).build()?;
        let turns = self.turns(Ours { semaphore }, round_trip, time).await;
        semaphores.shutdown().await;
        turns
    }
}
