//! Of the model: how permits are granted, and what a script does last.

use std::collections::{BTreeMap, BTreeSet};

use super::semaphore::Model;
use crate::support::scripts::{lease, part, weight};

impl Model {
    pub(super) fn grant(&mut self, word: &str, lease: i64) {
        self.permits.insert(word.to_owned(), self.now() + lease);
        self.granted.push((word.to_owned(), lease));
    }

    pub(super) fn is_granted(&self, word: &str) -> bool {
        self.granted.iter().any(|(granted, _)| granted == word)
    }

    pub(super) fn hand_off(&mut self, kept: Vec<(String, i64)>) {
        self.purge();
        for (word, lease) in kept {
            self.grant(&word, lease);
        }
        self.serve(&BTreeSet::new());
        self.write();
    }

    /// A script ends: tokens come after tickets. Answers those.
    pub(super) fn write(&mut self) -> BTreeMap<String, i64> {
        if self.granted.len() == self.permits.len() {
            self.longest = self.granted.first().map_or(self.longest, |(_, lease)| *lease);
        }
        let mut tokens = BTreeMap::new();
        for (word, lease) in std::mem::take(&mut self.granted) {
            self.longest = self.longest.max(lease);
            self.has_state = true;
            tokens.insert(word, self.next_number());
        }
        for word in std::mem::take(&mut self.told) {
            let granted = tokens.get(&word).map(|token| (*token, self.permits[&word]));
            let (token, ends) = granted.unwrap_or_default();
            self.messages.push((part(&word, 1).to_owned(), word, token, ends));
        }
        tokens
    }

    /// In strict order, until nothing is free or the first does not fit. It looks at so many at once
    /// as are free, or have left.
    pub(super) fn serve(&mut self, asked: &BTreeSet<&str>) {
        let mut left = 0;
        while !self.queue.is_empty() && self.held() < self.limit() {
            let step = (self.limit() - self.held()).max(left).min(100);
            let entries: Vec<_> = self.queue.iter().take(step as usize).cloned().collect();
            for entry in entries {
                let is_asked = asked.contains(entry.1.as_str());
                if self.held() >= self.limit() || !self.serve_one(&entry.1, is_asked) {
                    return;
                }
                self.queue.remove(&entry);
                left += 1;
            }
        }
    }

    /// Whether it leaves the queue.
    pub(super) fn serve_one(&mut self, word: &str, asks: bool) -> bool {
        let client = part(word, 1);
        let is_heard = self.clients.get(client).is_some_and(|until| *until >= self.now());
        let is_told = part(word, 0) != "N";
        if !(asks || is_heard && (!is_told || self.listening.contains(client))) {
            return true;
        }
        if self.runtime.is_some() || weight(word) <= self.limit() {
            if self.held() + weight(word) > self.limit() {
                return false;
            }
            self.grant(word, lease(word));
        }
        if !asks && is_told {
            self.told.push(word.to_owned());
        }
        true
    }
}
