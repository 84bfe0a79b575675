//! How permits are granted, and what a call does last.

use std::collections::{BTreeMap, BTreeSet};

use super::{Semaphore, word};

impl Semaphore {
    pub(super) fn grant(&mut self, word: &str, lease: i64) {
        self.permits.insert(word.to_owned(), self.now() + lease);
        self.granted.push((word.to_owned(), lease));
    }

    /// What all calls but `acquire` end with. `kept`: words whose lease begins anew.
    pub(super) fn hand_off(&mut self, kept: Vec<(&str, i64)>) {
        self.purge();
        for (word, lease) in kept {
            self.grant(word, lease);
        }
        self.serve(&BTreeSet::new(), false);
        self.finish();
    }

    /// In strict order, until nothing is free or the first does not fit. Where it `sweeps`, those who
    /// are not there go, though nothing is free.
    pub(super) fn serve(&mut self, asked: &BTreeSet<&str>, sweeps: bool) {
        let mut free = self.limit() - self.held();
        while (free > 0 || sweeps)
            && let Some(word) = self.queue.head().map(str::to_owned)
            && self.serve_one(&word, asked.contains(&*word), &mut free)
        {
            self.queue.remove(&word);
        }
    }

    /// Whether it leaves the queue. Whoever is not there does so without a permit.
    fn serve_one(&mut self, word: &str, is_asked: bool, free: &mut i64) -> bool {
        let (client, is_told) = (word::client(word), word::is_told(word));
        let is_heard = self.clients.get(client).is_some_and(|until| *until >= self.now());
        let is_there = is_asked || is_heard && (!is_told || self.listening.contains(client));
        if !is_there {
            return true;
        }
        if *free <= 0 {
            return false;
        }
        let weight = word::weight(word);
        if self.runtime.is_some() || weight <= self.limit() {
            if weight > *free {
                return false;
            }
            *free -= weight;
            self.grant(word, word::lease(word));
        }
        if !is_asked && is_told {
            self.told.push(word.to_owned());
        }
        true
    }

    /// The call ends. Tokens come after all tickets: answers those of what was granted.
    pub(super) fn finish(&mut self) -> BTreeMap<String, i64> {
        if self.granted.len() == self.permits.len() {
            self.longest_lease =
                self.granted.first().map_or(self.longest_lease, |(_, lease)| *lease);
        }
        let mut tokens = BTreeMap::new();
        for (word, lease) in std::mem::take(&mut self.granted) {
            self.longest_lease = self.longest_lease.max(lease);
            tokens.insert(word, self.next_number());
        }
        for word in std::mem::take(&mut self.told) {
            let granted = tokens.get(&word).map(|token| (token, self.permits[&word]));
            let (token, ends) = granted.unwrap_or((&0, 0));
            let lines = self.messages.entry(word::client(&word).to_owned()).or_default();
            lines.push(format!("{word} {token} {ends}"));
        }
        tokens
    }

    /// What was to be sent since it was last asked for: for each client the lines of one message.
    pub fn take_messages(&mut self) -> BTreeMap<String, Vec<String>> {
        std::mem::take(&mut self.messages)
    }
}
