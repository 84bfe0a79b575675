//! The state of each item that was given up: a dropped permit, a canceled wait, or a call whose
//! caller was dropped.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::Entry;

#[derive(Default)]
pub(super) struct Ledger {
    /// The entries, in the order in which they were given up.
    entries: BTreeMap<u64, Placed>,
    /// The number of the next entry.
    next: u64,
    is_kept: bool,
}

struct Placed {
    entry: Arc<Entry>,
    at: At,
}

impl Placed {
    /// If the entry cannot be sent yet, keeps it back, and returns true.
    fn keep_back(&self) -> bool {
        !matches!(self.at, At::On(_)) && self.entry.given_up.keep_back()
    }
}

#[derive(Clone, Copy, PartialEq)]
enum At {
    Here,
    /// The keeper has put the entry in a call that is not yet written to a connection.
    Taken,
    /// The entry is in a call that was written to this connection and has no reply yet.
    On(u64),
}

/// An entry and its number.
pub(super) type Numbered = (u64, Arc<Entry>);

impl Ledger {
    /// Adds an entry. Returns whether a keeper must be started.
    pub(super) fn add(&mut self, entry: Arc<Entry>) -> bool {
        self.entries.insert(self.next, Placed { entry, at: At::Here });
        self.next += 1;
        !std::mem::replace(&mut self.is_kept, true)
    }

    /// Ends the keeper. Removes and returns all entries.
    pub(super) fn abandon(&mut self) -> Vec<Numbered> {
        self.is_kept = false;
        let entries = std::mem::take(&mut self.entries).into_iter();
        entries.map(|(number, placed)| (number, placed.entry)).collect()
    }

    pub(super) fn next_number(&self) -> u64 {
        self.next
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// If an entry before this number cannot be sent yet, keeps it back, and returns true.
    pub(super) fn keep_back_before(&self, end: u64) -> bool {
        self.entries.range(..end).any(|(_, placed)| placed.keep_back())
    }

    /// Returns the entries that are not yet written to this connection and can be sent.
    pub(super) fn unwritten(&mut self, connection: u64) -> Vec<Numbered> {
        self.drop_unneeded();
        let placed = self.entries.iter();
        let sendable =
            placed.filter(|(_, placed)| placed.at != At::On(connection) && !placed.keep_back());
        sendable.map(|(number, placed)| (*number, placed.entry.clone())).collect()
    }

    /// Returns the entries that the keeper sends now. Returns `None` if no entry remains: the keeper
    /// must end.
    pub(super) fn take(&mut self) -> Option<Vec<Numbered>> {
        self.drop_unneeded();
        if self.entries.is_empty() {
            self.is_kept = false;
            return None;
        }
        let mut taken = Vec::new();
        for (number, placed) in &mut self.entries {
            if placed.at == At::Here && !placed.keep_back() {
                placed.at = At::Taken;
                taken.push((*number, placed.entry.clone()));
            }
        }
        Some(taken)
    }

    /// Removes entries whose IDs were never sent to the server: they need no release.
    fn drop_unneeded(&mut self) {
        self.entries.retain(|_, placed| {
            let is_written = matches!(placed.at, At::On(_));
            is_written || placed.keep_back() || placed.entry.given_up.id().is_some()
        });
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Arc<Entry>> {
        self.entries.remove(&number).map(|placed| placed.entry)
    }

    pub(super) fn written(&mut self, connection: u64, entries: &[Numbered]) {
        for (number, _) in entries {
            if let Some(placed) = self.entries.get_mut(number) {
                placed.at = At::On(connection);
            }
        }
    }

    /// Handles the failure of a call with these entries: the call got no reply, or was rejected.
    pub(super) fn failed(&mut self, connection: Option<u64>, entries: &[Numbered]) {
        let at = connection.map_or(At::Taken, At::On);
        for (number, _) in entries {
            // A later call may have written the entry to another connection.
            if let Some(placed) = self.entries.get_mut(number).filter(|placed| placed.at == at) {
                placed.at = At::Here;
            }
        }
    }

    pub(super) fn expired(&mut self, now: Instant) -> Vec<Arc<Entry>> {
        let is_expired =
            |(_, placed): &(&u64, &Placed)| placed.entry.until.is_some_and(|until| until <= now);
        let expired: Vec<u64> =
            self.entries.iter().filter(is_expired).map(|(number, _)| *number).collect();
        expired.into_iter().filter_map(|number| self.remove(number)).collect()
    }
}
