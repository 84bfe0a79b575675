//! Judges a history. Each rule is one function that knows nothing about the implementation.

mod admission;
mod counts;
mod forged;
mod losses;
mod own_order;
mod queue;

use std::collections::BTreeMap;

use super::beliefs::{Turn, turns};
use super::circumstances::Circumstances;
use super::history::{Event, Moment, What};

#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub lease: Moment,
    /// The longest allowed delay of the report of a loss. Timers and a busy machine cause delays.
    pub late: Moment,
    /// The longest time of a call if no fault is active.
    pub way: Moment,
    /// The longest possible wait if no fault is active. The checker adds the duration of faults.
    pub wait: Moment,
    /// If no reply arrives, a call that does not wait is retried for this time.
    pub patience: Moment,
    /// The unit in which the server counts leases.
    pub tick: Moment,
    /// The longest pause between a fault and the moment at which a client subscribes again. A
    /// client that is not subscribed is skipped.
    pub reconnecting: Moment,
    /// The longest time from a process's first wait on a semaphore to its subscription, if the
    /// process subscribes only then. Until then, its requests are skipped.
    pub subscribing: Moment,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Violation {
    pub rule: String,
    pub at: Moment,
    pub what: String,
}

/// Returns the violations in this history. The events must be ordered by time.
pub fn judge(events: &[Event], bounds: Bounds) -> Result<Vec<Violation>, String> {
    let case =
        Case { events, bounds, turns: turns(events)?, circumstances: Circumstances::new(events) };
    let rules = [
        Case::over_admission,
        Case::caps,
        Case::one_holder,
        Case::tokens,
        Case::reported_late,
        Case::taken_away,
        Case::order,
        Case::waits,
        Case::own_order,
        Case::errors,
        Case::counts,
        Case::found,
    ];
    let mut violations: Vec<_> = rules.iter().flat_map(|rule| rule(&case)).collect();
    violations.sort_by_key(|violation| violation.at);
    Ok(violations)
}

struct Case<'a> {
    events: &'a [Event],
    bounds: Bounds,
    turns: Vec<Turn>,
    circumstances: Circumstances,
}

impl Case<'_> {
    fn semaphores(&self) -> impl Iterator<Item = Vec<&Turn>> {
        let mut by_semaphore: BTreeMap<usize, Vec<&Turn>> = BTreeMap::new();
        for turn in &self.turns {
            by_semaphore.entry(turn.semaphore).or_default().push(turn);
        }
        by_semaphore.into_values()
    }

    /// Outages are shorter than the outage tolerance, so no wait fails. Other calls may fail during
    /// a fault. A call for several permits may lose permits that it already holds.
    fn errors(&self) -> Vec<Violation> {
        let violation = |event: &Event| {
            let What::Failed { turn, operation, error, excusable } = &event.what else {
                return None;
            };
            let longest = self.bounds.patience.max(self.bounds.lease);
            let began = event.at.saturating_sub(longest + self.bounds.late);
            let is_excused = *excusable
                && !["acquire", "acquire_timeout"].contains(&operation.as_str())
                && self.circumstances.trouble(event.process, began, event.at) > 0;
            let what = format!("{operation} of {}/{turn} failed: {error}", event.process);
            (!is_excused).then(|| Violation { rule: "errors".to_owned(), at: event.at, what })
        };
        self.events.iter().filter_map(violation).collect()
    }

    /// Returns the violations that the test run found itself: keys that never expire (L2), and
    /// processes that do not recover.
    fn found(&self) -> Vec<Violation> {
        let violation = |event: &Event| match &event.what {
            What::Found { rule, what } => {
                Some(Violation { rule: rule.clone(), at: event.at, what: what.clone() })
            }
            _ => None,
        };
        self.events.iter().filter_map(violation).collect()
    }
}
