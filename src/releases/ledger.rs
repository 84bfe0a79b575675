//! Where each thing stands that was given up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::time::Instant;

use super::Entry;

#[derive(Default)]
pub(super) struct Ledger {
    /// In the order in which they were given up.
    entries: BTreeMap<u64, Placed>,
    next: u64,
    /// Those that are [`At::Here`] or [`At::Taken`].
    unwritten: BTreeSet<u64>,
    /// Released at that time, and not before a call.
    later: BTreeMap<(Instant, u64), Arc<Entry>>,
    is_kept: bool,
}

struct Placed {
    entry: Arc<Entry>,
    at: At,
}

#[derive(Clone, Copy, PartialEq)]
enum At {
    Here,
    /// The keeper has it in a call that has not been written to a connection yet.
    Taken,
    /// In a call that was written to this connection, and not answered yet.
    On(u64),
}

/// An entry and its number.
pub(super) type Numbered = (u64, Arc<Entry>);

impl Ledger {
    /// Returns whether nobody keeps this.
    pub(super) fn add(&mut self, entry: Arc<Entry>) -> bool {
        let number = self.number();
        self.entries.insert(number, Placed { entry, at: At::Here });
        self.unwritten.insert(number);
        !std::mem::replace(&mut self.is_kept, true)
    }

    /// Returns whether nobody keeps this.
    pub(super) fn add_later(&mut self, at: Instant, entry: Arc<Entry>) -> bool {
        let number = self.number();
        self.later.insert((at, number), entry);
        !std::mem::replace(&mut self.is_kept, true)
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn next_number(&self) -> u64 {
        self.next + 1
    }

    pub(super) fn open(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn set_unkept(&mut self) {
        self.is_kept = false;
    }

    /// The first entry before this number that cannot be sent yet.
    pub(super) fn blocked_before(&self, end: u64) -> Option<u64> {
        let is_blocked = |number: &&u64| self.entries[number].entry.given_up.is_out();
        self.unwritten.range(..end).find(is_blocked).copied()
    }

    /// What has not been written to this connection, and can be.
    pub(super) fn unwritten(&mut self, connection: u64) -> Vec<Numbered> {
        self.drop_unneeded();
        let is_elsewhere = |at| matches!(at, At::On(on) if on != connection);
        let elsewhere = self.entries.len() > self.unwritten.len();
        let numbers: Vec<u64> = match elsewhere {
            false => self.unwritten.iter().copied().collect(),
            true => {
                let placed = self.entries.iter();
                let wanted = placed.filter(|(number, placed)| {
                    self.unwritten.contains(number) || is_elsewhere(placed.at)
                });
                wanted.map(|(number, _)| *number).collect()
            }
        };
        let sendable = numbers.into_iter().map(|number| (number, &self.entries[&number].entry));
        let sendable = sendable.filter(|(_, entry)| !entry.given_up.is_out());
        sendable.map(|(number, entry)| (number, entry.clone())).collect()
    }

    /// For the keeper: what goes out now, and when to look again. `None`: nothing is left, and
    /// nobody keeps this from now on.
    pub(super) fn take(
        &mut self,
        now: Instant,
        is_last: bool,
    ) -> Option<(Vec<Numbered>, Option<Instant>)> {
        let later = self.later.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut self.later, later);
        for ((_, number), entry) in due {
            self.entries.insert(number, Placed { entry, at: At::Here });
            self.unwritten.insert(number);
        }
        if is_last {
            self.later.clear();
        }
        self.drop_unneeded();
        if self.entries.is_empty() && self.later.is_empty() {
            self.is_kept = false;
            return None;
        }
        let mut taken = Vec::new();
        for number in &self.unwritten {
            let Some(placed) = self.entries.get_mut(number) else { continue };
            if placed.at == At::Here && !placed.entry.given_up.is_out() {
                placed.at = At::Taken;
                taken.push((*number, placed.entry.clone()));
            }
        }
        Some((taken, self.later.keys().next().map(|(at, _)| *at)))
    }

    /// Of what never reached the server nothing remains to be released.
    fn drop_unneeded(&mut self) {
        let is_unneeded = |number: &&u64| {
            let given_up = &self.entries[number].entry.given_up;
            !given_up.is_out() && given_up.id().is_none()
        };
        let unneeded: Vec<u64> = self.unwritten.iter().filter(is_unneeded).copied().collect();
        for number in unneeded {
            self.remove(number);
        }
    }

    fn remove(&mut self, number: u64) -> Option<Arc<Entry>> {
        self.unwritten.remove(&number);
        self.entries.remove(&number).map(|placed| placed.entry)
    }

    pub(super) fn written(&mut self, connection: u64, entries: &[Numbered]) {
        for (number, _) in entries {
            if let Some(placed) = self.entries.get_mut(number) {
                placed.at = At::On(connection);
                self.unwritten.remove(number);
            }
        }
    }

    /// A call with these had no answer, or was refused.
    pub(super) fn failed(&mut self, connection: Option<u64>, entries: &[Numbered]) {
        let at = connection.map_or(At::Taken, At::On);
        for (number, _) in entries {
            // Another call may have written it to another connection since.
            if let Some(placed) = self.entries.get_mut(number).filter(|placed| placed.at == at) {
                placed.at = At::Here;
                self.unwritten.insert(*number);
            }
        }
    }

    /// The server has nothing of these any more. Returns those that nobody had confirmed yet.
    pub(super) fn confirmed(&mut self, entries: Vec<Numbered>) -> Vec<Arc<Entry>> {
        entries.into_iter().filter_map(|(number, _)| self.remove(number)).collect()
    }

    pub(super) fn expired(&mut self, now: Instant) -> Vec<Arc<Entry>> {
        let is_expired =
            |(_, placed): &(&u64, &Placed)| placed.entry.until.is_some_and(|until| until <= now);
        let expired: Vec<u64> =
            self.entries.iter().filter(is_expired).map(|(number, _)| *number).collect();
        expired.into_iter().filter_map(|number| self.remove(number)).collect()
    }
}
