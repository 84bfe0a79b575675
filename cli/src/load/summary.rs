//! The results of all tasks together.

use serde::Serialize;

use crate::clock::SECOND;
use crate::load::groups::GroupResult;
use crate::load::messages::{Log, Turn, Window};
use crate::load::options::Load;
use crate::load::statistics::Served;
use crate::load::sweep::most_at_once;

/// `load --help` describes the fields.
#[derive(Debug, Serialize)]
pub struct Summary<'a> {
    #[serde(flatten)]
    pub options: &'a Load,
    /// The declared limit, or the effective limit if this run declared none.
    pub limit: u32,
    pub elapsed_seconds: f64,
    pub acquires: usize,
    pub per_second: f64,
    pub ideal_per_second: Option<f64>,
    pub utilization: f64,
    /// `None` if no permit was granted.
    pub wait_us: Option<Waits>,
    pub turns: Turns,
    pub calls_per_acquire: Option<f64>,
    pub server_us_per_acquire: Option<f64>,
    pub max_held: u64,
    pub lost: u64,
    pub groups: Vec<GroupResult<'a>>,
}

#[derive(Debug, Serialize)]
pub struct Waits {
    pub p50: u64,
    pub p99: u64,
    pub max: u64,
}

#[derive(Debug, Serialize)]
pub struct Turns {
    pub min: usize,
    pub max: usize,
}

impl<'a> Summary<'a> {
    pub fn new(
        options: &'a Load,
        limit: u32,
        window: Window,
        logs: &[Log],
        served: Option<Served>,
    ) -> Self {
        // A permit may have been granted after the end of the run, if its task had not found out
        // about the end yet.
        let in_time = |turn: &&Turn| turn.held < window.end;
        let turns_of = |log: &Log| log.turns.iter().filter(in_time).count();
        let all_turns = || logs.iter().flat_map(|log| &log.turns);
        let turns: Vec<Turn> = all_turns().filter(in_time).copied().collect();

        let acquires = turns.len();
        let elapsed_seconds = seconds(window.end - window.begin);
        let held: u64 = turns.iter().map(|turn| turn.freed.min(window.end) - turn.held).sum();
        let weight = f64::from(options.weight);
        let by_acquires = |sum: u64| (acquires > 0).then(|| sum as f64 / acquires as f64);
        Self {
            options,
            limit,
            elapsed_seconds,
            acquires,
            per_second: acquires as f64 / elapsed_seconds,
            ideal_per_second: ideal_per_second(options, limit, window, &turns),
            utilization: seconds(held) * weight / (f64::from(limit) * elapsed_seconds),
            wait_us: Waits::new(&turns),
            turns: Turns {
                min: logs.iter().map(turns_of).min().unwrap_or(0),
                max: logs.iter().map(turns_of).max().unwrap_or(0),
            },
            calls_per_acquire: served.and_then(|served| by_acquires(served.calls)),
            server_us_per_acquire: served.and_then(|served| by_acquires(served.us)),
            max_held: most_at_once(all_turns().map(|turn| (turn.held, turn.freed))) as u64
                * u64::from(options.weight),
            lost: logs.iter().map(|log| log.lost).sum(),
            groups: GroupResult::of_all(&options.groups, logs, in_time),
        }
    }

    /// Returns whether the limit was kept.
    pub fn is_kept(&self) -> bool {
        self.max_held <= u64::from(self.limit)
    }
}

/// Returns how many permits per second the limit and the number of tasks would allow if a released
/// permit were granted again immediately. Ignores holds that the end of the run cut short.
fn ideal_per_second(options: &Load, limit: u32, window: Window, turns: &[Turn]) -> Option<f64> {
    let whole = turns.iter().filter(|turn| turn.freed < window.end);
    let (count, held) =
        whole.fold((0, 0), |(count, held), turn| (count + 1, held + turn.freed - turn.held));
    let at_once = (limit / options.weight).min(options.tasks);
    (held > 0).then(|| f64::from(at_once) * f64::from(count) / seconds(held))
}

impl Waits {
    pub fn new(turns: &[Turn]) -> Option<Self> {
        let mut waits: Vec<u64> =
            turns.iter().map(|turn| (turn.held - turn.asked) / 1000).collect();
        waits.sort_unstable();
        // At least this percentage of all waits are not longer than the returned wait.
        let percentile = |percent: usize| waits[(waits.len() * percent).div_ceil(100) - 1];
        let max = *waits.last()?;
        Some(Self { p50: percentile(50), p99: percentile(99), max })
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / SECOND as f64
}
