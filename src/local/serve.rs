//! Grants permits, and completes each call.

use std::collections::{BTreeMap, BTreeSet};

use super::{Semaphore, id};

/// The outcome of the turn of a request.
#[derive(Debug, PartialEq)]
pub(super) enum Served {
    Granted,
    /// It leaves the queue without a permit.
    Leaves,
    /// Its group is at its cap.
    AtCap,
    /// It does not fit into the free permits.
    Blocked,
}

impl Semaphore {
    pub(super) fn grant(&mut self, id: &str, lease: i64) {
        if !id::group(id).is_empty() {
            self.begin_groups();
        }
        self.permits.insert(id.to_owned(), self.now() + lease);
        self.granted.push((id.to_owned(), lease));
    }

    /// The last step of all calls except `acquire`. `kept`: the IDs whose leases restart.
    pub(super) fn hand_off(&mut self, kept: Vec<(&str, i64)>) {
        self.purge();
        for (id, lease) in kept {
            self.grant(id, lease);
        }
        self.serve(&BTreeSet::new(), false);
        self.finish();
    }

    /// Grants permits in strict order until no permit is free or the first request does not fit. If
    /// `sweeps` is set, also removes dead requests when no permit is free.
    pub(super) fn serve(&mut self, asked: &BTreeSet<&str>, sweeps: bool) {
        if self.turns.virtual_time.is_some() {
            return self.serve_turns(asked, sweeps);
        }
        let mut free = self.limit() - self.held();
        while (free > 0 || sweeps)
            && let Some(id) = self.queue.first("").map(str::to_owned)
            && self.serve_one(&id, asked.contains(&*id), &mut free) != Served::Blocked
        {
            self.queue.remove(&id);
        }
    }

    /// If its client is dead, or if it is too heavy, the request leaves without a permit.
    pub(super) fn serve_one(&mut self, id: &str, is_asked: bool, free: &mut i64) -> Served {
        let (weight, is_notified) = (id::weight(id), id::is_notified(id));
        if !is_asked && !self.is_alive(id) {
            return Served::Leaves;
        }
        if self.exceeds_cap(id, weight) {
            return Served::AtCap;
        }
        let fits_limit = self.runtime.is_some() || weight <= self.limit();
        if *free <= 0 || fits_limit && weight > *free {
            return Served::Blocked;
        }
        if fits_limit {
            *free -= weight;
            self.grant(id, id::lease(id));
        }
        if !is_asked && is_notified {
            self.notified.push(id.to_owned());
        }
        if fits_limit { Served::Granted } else { Served::Leaves }
    }

    /// Whether the request's client is subscribed, and sent a heartbeat in time.
    pub(super) fn is_alive(&self, id: &str) -> bool {
        let client = id::client(id);
        let is_in_time = self.clients.get(client).is_some_and(|until| *until >= self.now());
        is_in_time && (!id::is_notified(id) || self.listening.contains(client))
    }

    /// Ends the call. Issues and returns the tokens of the granted permits. All tickets are issued
    /// before the tokens.
    pub(super) fn finish(&mut self) -> BTreeMap<String, i64> {
        if self.granted.len() == self.permits.len() {
            self.longest_lease =
                self.granted.first().map_or(self.longest_lease, |(_, lease)| *lease);
        }
        let mut tokens = BTreeMap::new();
        for (id, lease) in std::mem::take(&mut self.granted) {
            self.longest_lease = self.longest_lease.max(lease);
            tokens.insert(id, self.next_number());
        }
        for id in std::mem::take(&mut self.notified) {
            let granted = tokens.get(&id).map(|token| (token, self.permits[&id]));
            let (token, ends) = granted.unwrap_or((&0, 0));
            let lines = self.messages.entry(id::client(&id).to_owned()).or_default();
            lines.push(format!("{id} {token} {ends}"));
        }
        tokens
    }

    /// Returns the messages since the last call: for each client, the lines of one message.
    pub fn take_messages(&mut self) -> BTreeMap<String, Vec<String>> {
        std::mem::take(&mut self.messages)
    }
}
