//! A rush: more tasks than permits, for several seconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use super::Result;
use super::arguments::only_tests;
use super::course::Course;
use super::design::{Design, for_tasks};
use super::server::unique_name;

pub struct Rush {
    pub limit: u32,
    pub tasks: usize,
    pub work: Duration,
    pub warm_up: Duration,
    pub time: Duration,
}

#[derive(Default)]
pub struct Outcome {
    /// The waits that ended in the measured time. A wait that began before the measured time and
    /// lasted until its end counts, too.
    pub waits: Vec<Duration>,
    /// The number of grants in the measured time.
    pub turns: usize,
    /// The time of work within the measured time.
    pub worked: Duration,
}

#[derive(Clone)]
struct Task {
    work: Duration,
    start: Instant,
    end: Instant,
    inside: Arc<AtomicUsize>,
    most_inside: Arc<AtomicUsize>,
}

impl Rush {
    /// Returns the rushes: one with 100 tasks and one with 1,000, because designs that poll suffer
    /// from more tasks.
    pub fn all() -> Vec<Self> {
        let work = Duration::from_millis(5);
        if only_tests() {
            let time = Duration::from_millis(200);
            return vec![Self { limit: 2, tasks: 20, work, warm_up: time, time }];
        }
        let (warm_up, time) = (Duration::from_secs(1), Duration::from_secs(5));
        [100, 1000].map(|tasks| Self { limit: 10, tasks, work, warm_up, time }).into()
    }

    pub async fn run<D: Design>(&self) -> Result<Course> {
        let design = D::open(&unique_name("rush"), self.limit).await?;
        let designs = for_tasks(&design, self.tasks).await?;
        let start = Instant::now() + self.warm_up;
        let (inside, most_inside) = Default::default();
        let task = Task { work: self.work, start, end: start + self.time, inside, most_inside };
        let tasks: JoinSet<_> =
            designs.into_iter().map(|design| task.clone().run(design)).collect();
        let outcomes = tasks.join_all().await.into_iter().collect::<Result<Vec<_>>>()?;
        let most_inside = task.most_inside.load(Ordering::Relaxed);
        Ok(Course::new(D::NAME, self, &outcomes, most_inside))
    }
}

impl Task {
    async fn run<D: Design>(self, mut design: D) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        loop {
            let asked = Instant::now();
            let acquired = timeout_at(self.end, design.acquire()).await;
            let entered = Instant::now();
            if entered >= self.start && (acquired.is_ok() || asked < self.start) {
                outcome.waits.push(entered - asked);
            }
            let Ok(permit) = acquired else {
                return Ok(outcome);
            };
            if entered >= self.start {
                outcome.turns += 1;
            }
            outcome.worked += self.work(entered).await;
            design.release(permit?).await?;
        }
    }

    /// Works, and returns how much of the work was done in the measured time.
    async fn work(&self, entered: Instant) -> Duration {
        let inside = self.inside.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_inside.fetch_max(inside, Ordering::Relaxed);
        sleep(self.work).await;
        self.inside.fetch_sub(1, Ordering::Relaxed);
        let (from, to) = (entered.max(self.start), Instant::now().min(self.end));
        to.saturating_duration_since(from)
    }
}
