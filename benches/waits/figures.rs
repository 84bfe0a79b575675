//! The results of a rush, in numbers.

use std::time::Duration;

use serde::Serialize;

use crate::rush::{Course, Rush};
use crate::support::Result;

#[derive(Serialize)]
pub struct Figures {
    design: &'static str,
    limit: u32,
    tasks: usize,
    work_ms: f64,
    seconds: f64,
    /// The share of the permits' time in which tasks worked.
    busy: f64,
    /// The largest number of concurrent holders, which should equal the limit.
    most_inside: usize,
    /// The number of grants for each task, in ascending order.
    turns: Vec<usize>,
    /// The percentiles 1 to 100 of all waits.
    waits_ms: Vec<f64>,
}

impl Figures {
    pub fn new(rush: &Rush, course: &Course) -> Self {
        let Course { design, ref outcomes, most_inside } = *course;
        let mut waits: Vec<Duration> =
            outcomes.iter().flat_map(|outcome| &outcome.waits).copied().collect();
        waits.sort_unstable();
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
            waits_ms: (1..=100).map(|percent| percentile(&waits, percent)).collect(),
        }
    }

    fn wait(&self, percent: usize) -> f64 {
        self.waits_ms[percent - 1]
    }
}

/// Returns the shortest wait that this share of all waits did not exceed.
fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let count = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(count - 1).map_or(0.0, |wait| millis(*wait))
}

fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// Prints one line of JSON, or a table for each rush.
pub fn print(all: &[Figures], as_json: bool) -> Result<()> {
    if as_json {
        println!("{}", serde_json::to_string(all)?);
        return Ok(());
    }
    for rush in all.chunk_by(|one, next| one.tasks == next.tasks) {
        print_table(rush);
    }
    Ok(())
}

fn print_table(rush: &[Figures]) {
    let Figures { limit, tasks, work_ms, seconds, .. } = &rush[0];
    println!("\nlimit {limit}, {tasks} tasks, {work_ms} ms of work, {seconds} s");
    println!(
        "{:22} {:>8} {:>6} {:>7} {:>9} {:>9} {:>9} {:>9} {:>13}",
        "", "turns/s", "busy", "inside", "p50", "p95", "p99", "longest", "turns of each"
    );
    for figures in rush {
        let turns: usize = figures.turns.iter().sum();
        println!(
            "{:22} {:8.0} {:5.0}% {:7} {:6.0} ms {:6.0} ms {:6.0} ms {:6.0} ms {:>13}",
            figures.design,
            turns as f64 / figures.seconds,
            figures.busy * 100.0,
            figures.most_inside,
            figures.wait(50),
            figures.wait(95),
            figures.wait(99),
            figures.wait(100),
            range(&figures.turns),
        );
    }
}

fn range(sorted: &[usize]) -> String {
    let (fewest, most) = (sorted.first().unwrap_or(&0), sorted.last().unwrap_or(&0));
    format!("{fewest} to {most}")
}
