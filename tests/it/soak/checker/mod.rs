//! Judges a history. Each rule is one function, and knows nothing of how semaphores work.

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
    /// How late a loss may be told: timers, and a machine that is busy.
    pub late: Moment,
    /// How long a call may take when nothing is wrong.
    pub way: Moment,
    /// The longest that anybody may have to wait when nothing is wrong; what was wrong meanwhile
    /// comes on top.
    pub wait: Moment,
    /// How long a call that does not wait goes on when there is no answer.
    pub patience: Moment,
    /// What the server counts leases in.
    pub tick: Moment,
    /// For how long after a fault a client may still pause before it listens again. Whoever does
    /// not listen loses its turn.
    pub reconnecting: Moment,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Violation {
    pub rule: String,
    pub at: Moment,
    pub what: String,
}

/// What is wrong with this history. Its events are in the order of time.
pub fn judge(events: &[Event], bounds: Bounds) -> Result<Vec<Violation>, String> {
    let case =
        Case { events, bounds, turns: turns(events)?, circumstances: Circumstances::new(events) };
    let rules = [
        Case::over_admission,
        Case::one_holder,
        Case::tokens,
        Case::told_late,
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

    /// Outages are shorter than what a wait survives, so no wait fails. A call that does not wait
    /// may, while something is wrong; and one that has a part of what it waits for may lose it.
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

    /// What the campaign found wrong itself: L2, and who does not recover.
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
