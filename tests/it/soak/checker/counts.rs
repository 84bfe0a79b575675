//! Compares each process's metrics with the events that it reported: every event must be counted
//! exactly once.

use super::super::beliefs::{End, Turn};
use super::super::history::{Counts, Moment, What, Why};
use super::{Case, Violation};

impl Case<'_> {
    pub fn counts(&self) -> Vec<Violation> {
        let violation = |event: &super::Event| {
            let What::Counted { semaphore, counts, is_all_reported } = &event.what else {
                return None;
            };
            let of = |turn: &&Turn| (turn.process, turn.semaphore) == (event.process, *semaphore);
            let wrong = match is_all_reported {
                true => Reported::by(self.turns.iter().filter(of)).differs_from(counts)?,
                false => is_unbalanced(counts)?,
            };
            let what = format!("{} of semaphore {semaphore}: {wrong}", event.process);
            Some(Violation { rule: "metrics".to_owned(), at: event.at, what })
        };
        self.events.iter().filter_map(violation).collect()
    }
}

/// The reports of a process about one semaphore.
#[derive(Debug, Default)]
struct Reported {
    counts: Counts,
    grants: u64,
    /// Upper and lower bounds, in s. The exact times are unknown, because a process reports before
    /// its request and after the result.
    most_waiting: f64,
    least_holding: f64,
    most_holding: f64,
}

impl Reported {
    fn by<'a>(turns: impl Iterator<Item = &'a Turn>) -> Self {
        let mut reported = Self::default();
        turns.for_each(|turn| reported.add(turn));
        reported
    }

    fn add(&mut self, turn: &Turn) {
        let counts = &mut self.counts;
        if let Some((_, End::WithoutPermit(why))) = turn.end {
            *match why {
                Why::Refused => &mut counts.refused,
                Why::TimedOut => &mut counts.timed_out,
                Why::Dropped => &mut counts.cancelled,
                Why::Failed => &mut counts.failed,
            } += 1;
        }
        let Some(grant) = turn.grant else { return };
        self.grants += 1;
        self.most_waiting += seconds(turn.asked, grant.at);
        let Some((gone, lost)) = turn.gone else { return };
        counts.hold_times += 1;
        self.most_holding += seconds(turn.asked, gone);
        counts.lost += u64::from(lost);
        // A lost permit is left out, because the process may have noticed the loss late.
        if let (Some(ended), false) = (turn.ended(), lost) {
            self.least_holding += seconds(grant.at, ended);
        }
    }

    fn differs_from(&self, counted: &Counts) -> Option<String> {
        // No report contains whether a permit was granted immediately or after a wait.
        let Counts { immediate, waited, wait_time, hold_time, .. } = *counted;
        let reported = Counts { immediate, waited, wait_time, hold_time, ..self.counts.clone() };
        let is_right = Counts { wait_times: waited, ..reported } == *counted
            && immediate + waited == self.grants
            && wait_time <= self.most_waiting
            && (self.least_holding..=self.most_holding).contains(&hold_time);
        (!is_right).then(|| format!("{counted:?} was counted, and {self:?}"))
    }
}

/// Checks semaphores whose tasks do not report everything: in the end, each permit has ended and no
/// request waits.
fn is_unbalanced(counted: &Counts) -> Option<String> {
    let Counts { immediate, waited, adopted, wait_times, hold_times, lost, held, waiting, .. } =
        *counted;
    let is_right = immediate + waited + adopted == hold_times
        && wait_times == waited
        && lost <= hold_times
        && (held, waiting) == (0, 0);
    (!is_right).then(|| format!("{counted:?} was counted, which is not balanced"))
}

fn seconds(from: Moment, to: Moment) -> f64 {
    (to - from) as f64 / 1e9
}
