//! The waiting requests, by group and in ticket order.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::id;

/// The ticket and the ID of a request.
type Entry = (i64, String);

#[derive(Debug, Default, Clone)]
pub struct Queue {
    /// The requests of each group. The group of requests without a group is "".
    lines: BTreeMap<String, BTreeSet<Entry>>,
    tickets: HashMap<String, i64>,
}

impl Queue {
    /// Returns the requests without a group in ticket order, and then all others in ticket order.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        let (others, grouped) =
            self.lines.iter().partition::<Vec<_>, _>(|(group, _)| group.is_empty());
        let mut grouped: Vec<_> = grouped.into_iter().flat_map(|(_, line)| line).collect();
        // The server sorts equal tickets in descending order of the IDs.
        grouped.sort_by(|one, other| one.0.cmp(&other.0).then_with(|| other.1.cmp(&one.1)));
        others.into_iter().flat_map(|(_, line)| line).chain(grouped)
    }

    pub fn len(&self) -> usize {
        self.tickets.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    /// The requests of a group, in ticket order.
    pub(super) fn line(&self, group: &str) -> impl Iterator<Item = &Entry> {
        self.lines.get(group).into_iter().flatten()
    }

    pub(super) fn first(&self, group: &str) -> Option<&str> {
        self.line(group).next().map(|(_, id)| &**id)
    }

    pub(super) fn ticket(&self, id: &str) -> Option<i64> {
        self.tickets.get(id).copied()
    }

    pub(super) fn insert(&mut self, ticket: i64, id: &str) {
        let line = self.lines.entry(id::group(id).to_owned()).or_default();
        line.insert((ticket, id.to_owned()));
        self.tickets.insert(id.to_owned(), ticket);
    }

    /// Returns whether the request was in the queue.
    pub(super) fn remove(&mut self, id: &str) -> bool {
        let Some((id, ticket)) = self.tickets.remove_entry(id) else { return false };
        let group = id::group(&id).to_owned();
        if let Some(line) = self.lines.get_mut(&group) {
            line.remove(&(ticket, id));
            if line.is_empty() {
                self.lines.remove(&group);
            }
        }
        true
    }
}
