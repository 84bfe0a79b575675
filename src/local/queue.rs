//! The waiting requests, in ticket order.

use std::collections::{BTreeSet, HashMap};

#[derive(Debug, Default, Clone)]
pub struct Queue {
    order: BTreeSet<(i64, String)>,
    tickets: HashMap<String, i64>,
}

impl Queue {
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &(i64, String)> + DoubleEndedIterator {
        self.order.iter()
    }

    pub fn head(&self) -> Option<&str> {
        self.order.first().map(|(_, id)| &**id)
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(super) fn ticket(&self, id: &str) -> Option<i64> {
        self.tickets.get(id).copied()
    }

    pub(super) fn insert(&mut self, ticket: i64, id: &str) {
        self.order.insert((ticket, id.to_owned()));
        self.tickets.insert(id.to_owned(), ticket);
    }

    /// Returns whether the request was in the queue.
    pub(super) fn remove(&mut self, id: &str) -> bool {
        let entry = self.tickets.remove_entry(id).map(|(id, ticket)| (ticket, id));
        entry.is_some_and(|entry| self.order.remove(&entry))
    }
}
