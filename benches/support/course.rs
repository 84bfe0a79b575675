//! The course of a rush, in numbers.

use std::time::Duration;

use serde::Serialize;

use super::Result;
use super::figure::Figure;
use super::rush::{Outcome, Rush};

#[derive(Serialize)]
pub struct Course {
    design: &'static str,
    limit: u32,
    tasks: usize,
    work_ms: f64,
    seconds: f64,
    /// The share of the permits' time in which tasks worked.
    pub busy: f64,
    /// The largest number of concurrent holders, which should equal the limit.
    most_inside: usize,
    /// The number of grants for each task, in ascending order.
    pub turns: Vec<usize>,
    /// The percentiles 1 to 100 of all waits.
    waits_ms: Vec<f64>,
}

impl Course {
    pub fn new(
        design: &'static str,
        rush: &Rush,
        outcomes: &[Outcome],
        most_inside: usize,
    ) -> Self {
        let waits = outcomes.iter().flat_map(|outcome| &outcome.waits).copied().collect();
        let mut turns: Vec<usize> = outcomes.iter().map(|outcome| outcome.turns).collect();
        turns.sort_unstable();
        let worked: Duration = outcomes.iter().map(|outcome| outcome.worked).sum();
        let seconds = rush.time.as_secs_f64();
        Self {
            design,
            limit: rush.limit,
            tasks: rush.tasks,
            work_ms: millis(rush.work),
            seconds,
            busy: worked.as_secs_f64() / (seconds * f64::from(rush.limit)),
            most_inside,
            turns,
            waits_ms: percentiles(waits),
        }
    }

    /// Returns the wait of each task if turns are distributed equally, and the longest wait, in ms.
    pub fn ideal_and_longest_wait(&self) -> (f64, f64) {
        let all_turns: usize = self.turns.iter().sum();
        let ideal = self.tasks as f64 * self.busy * self.seconds / all_turns as f64;
        (ideal * 1e3, self.waits_ms[99])
    }

    pub fn figure(&self) -> Result<Figure> {
        let what = format!("{} tasks, {}: the longest wait", self.tasks, self.design);
        Figure::new("W", what, "ms", self.ideal_and_longest_wait()).with_details(self)
    }
}

/// Returns the percentiles 1 to 100 in ms.
pub fn percentiles(mut waits: Vec<Duration>) -> Vec<f64> {
    waits.sort_unstable();
    (1..=100).map(|percent| percentile(&waits, percent)).collect()
}

/// Returns the shortest wait that this share of all waits did not exceed.
fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let count = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(count - 1).map_or(0.0, |wait| millis(*wait))
}

fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}
