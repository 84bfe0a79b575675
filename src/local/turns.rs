//! The turns of the groups, and the virtual time.

use std::collections::BTreeMap;

/// The turns of the groups.
#[derive(Debug, Default, Clone)]
pub struct Turns {
    /// `None` until a request has a group.
    pub virtual_time: Option<f64>,
    /// For each group that waits, the start of its turn: infinite from its turn on while the group
    /// is at its cap. For a group that does not wait, minus the end of its last turn. The group of
    /// requests without a group is "".
    pub starts: BTreeMap<String, f64>,
    /// The weight that each group held before this call.
    pub(super) held_before: BTreeMap<String, i64>,
}

/// Returns `start` + `distance`, or the next number if the sum is rounded to `start`.
pub(super) fn later(start: f64, distance: f64) -> f64 {
    (start + distance).max(start * (1.0 + f64::EPSILON))
}

impl Turns {
    pub(super) fn turn(&self, group: &str) -> f64 {
        self.starts.get(group).copied().unwrap_or(0.0)
    }

    pub(super) fn set_turn(&mut self, group: &str, start: f64) {
        self.starts.insert(group.to_owned(), start);
    }

    /// The group that is next, and the start of its turn.
    pub(super) fn next(&self) -> Option<(&str, f64)> {
        let waiting = self.starts.iter().filter(|(_, start)| **start > 0.0 && start.is_finite());
        let next = waiting.min_by(|one, other| one.1.total_cmp(other.1));
        next.map(|(group, start)| (&**group, *start))
    }

    /// The groups that wait, in the order of their turns.
    pub(super) fn waiting(&self) -> Vec<&str> {
        let waiting = self.starts.iter().filter(|(_, start)| **start > 0.0);
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_by(|one, other| one.1.total_cmp(other.1));
        waiting.into_iter().map(|(group, _)| &**group).collect()
    }

    /// Ends the turns of a group that no longer waits, and forgets up to two groups.
    pub(super) fn end_turns(&mut self, group: &str, end: f64) {
        self.set_turn(group, -end);
        let virtual_time = self.virtual_time.unwrap_or_default();
        let over = self.starts.iter().filter(|(_, turn)| (-virtual_time..0.0).contains(*turn));
        let mut over: Vec<_> = over.map(|(group, turn)| (*turn, group.clone())).collect();
        over.sort_by(|one, other| one.0.total_cmp(&other.0));
        for (_, group) in over.into_iter().take(2) {
            self.starts.remove(&group);
        }
    }
}
