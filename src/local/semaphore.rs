//! What is kept of a semaphore. Times are in ms on the server's clock, unless they say µs.

use std::collections::{BTreeMap, BTreeSet};

use super::id;
use super::queue::Queue;

#[derive(Debug, Default, Clone)]
pub struct Semaphore {
    /// What time it is.
    pub now_us: i64,
    /// The clients that a message reaches.
    pub listening: BTreeSet<String>,
    pub declared: Option<i64>,
    pub runtime: Option<i64>,
    /// The last number given, as a token or as a ticket.
    pub last: i64,
    /// No lease in use is longer.
    pub longest_lease: i64,
    /// The end of each lease.
    pub permits: BTreeMap<String, i64>,
    pub queue: Queue,
    /// Until when each counts as heard of.
    pub clients: BTreeMap<String, i64>,
    /// That any of them asked for.
    pub longest_heartbeat_timeout: i64,
    /// Until when each mark of a change of the limit is known.
    pub marks: BTreeMap<String, i64>,
    /// IDs whose lease begins in this call, and their leases.
    pub(super) granted: Vec<(String, i64)>,
    /// IDs that leave the queue in this call, and whose client hears of it by a message.
    pub(super) told: Vec<String>,
    /// What is to be sent, line by line, by client.
    pub(super) messages: BTreeMap<String, Vec<String>>,
}

impl Semaphore {
    pub fn now(&self) -> i64 {
        self.now_us / 1000
    }

    /// Whether anything was ever written.
    pub fn is_used(&self) -> bool {
        self.known_limit().is_some() || self.last > 0
    }

    pub(super) fn known_limit(&self) -> Option<i64> {
        self.runtime.or(self.declared)
    }

    /// In force.
    pub fn limit(&self) -> i64 {
        self.known_limit().unwrap_or(0)
    }

    /// The limits, declared and set at run time, once a client has brought its own.
    pub(super) fn configured(&self, kind: &str, limit: i64) -> (Option<i64>, Option<i64>) {
        let is_known = self.known_limit().is_some();
        match kind {
            "declare" => (Some(limit), self.runtime),
            "declare_if_unset" if !is_known => (Some(limit), None),
            "initial" if !is_known => (None, Some(limit)),
            _ => (self.declared, self.runtime),
        }
    }

    /// The weight of all permits whose lease has not ended then.
    pub fn held_at(&self, now: i64) -> i64 {
        let live = self.permits.iter().filter(|(_, ends)| **ends > now);
        live.map(|(id, _)| id::weight(id)).sum()
    }

    /// After a [`purge`](Self::purge).
    pub(super) fn held(&self) -> i64 {
        self.held_at(i64::MIN)
    }

    pub fn holds(&self, id: &str) -> bool {
        self.permits.get(id).is_some_and(|ends| *ends > self.now())
    }

    pub(super) fn next_number(&mut self) -> i64 {
        self.last = (self.last + 1).max(self.now_us);
        self.last
    }

    /// The clock is further behind the last number than many calls at once explain.
    pub(super) fn is_set_back(&self) -> bool {
        self.last > self.now_us + 1_000_000
    }

    /// When `wake` is worth a call: in so many ms, or -1.
    pub(super) fn wake_in(&self) -> i64 {
        let ends = self.permits.values().map(|ends| ends - self.now()).min();
        ends.map_or(-1, |ms| ms.max(1))
    }

    /// How many clients wait. Those that have missed a heartbeat do not count.
    pub(super) fn crowd(&self, heartbeat_timeout: i64) -> i64 {
        let since = self.now() + heartbeat_timeout * 3 / 5;
        self.clients.values().filter(|until| **until >= since).count() as i64
    }

    /// Of those who were not heard of in time two go with each who is new.
    pub(super) fn hear_of(&mut self, client: &str, heartbeat_timeout: i64) {
        let is_new = !self.clients.contains_key(client);
        let (now, until) = (self.now(), self.now() + heartbeat_timeout);
        let heard = self.clients.entry(client.to_owned()).or_insert(until);
        *heard = until.max(*heard);
        self.longest_heartbeat_timeout = self.longest_heartbeat_timeout.max(heartbeat_timeout);
        self.is_written_now();
        if is_new {
            let dead = self.clients.iter().filter(|(_, heard)| **heard < now);
            let mut dead: Vec<_> = dead.map(|(client, heard)| (*heard, client.clone())).collect();
            dead.sort();
            for (_, client) in dead.into_iter().take(2) {
                self.clients.remove(&client);
            }
        }
    }

    /// Of those whose time is over two go with each new mark.
    pub(super) fn remember(&mut self, mark: &str, lease: i64) {
        let now = self.now();
        self.marks.insert(mark.to_owned(), now + lease);
        self.is_written_now();
        let over = self.marks.iter().filter(|(_, until)| **until <= now);
        let mut over: Vec<_> = over.map(|(mark, until)| (-until, mark.clone())).collect();
        over.sort();
        for (_, mark) in over.into_iter().take(2) {
            self.marks.remove(&mark);
        }
    }

    /// It shows later whether the clock has stepped back since.
    fn is_written_now(&mut self) {
        self.last = self.last.max(self.now_us - 1);
    }

    /// Ended leases go. If the clock has stepped back, nothing ends later than it can since then.
    pub(super) fn purge(&mut self) {
        let now = self.now();
        if self.is_set_back() {
            let latest = now + self.longest_lease;
            self.permits.values_mut().for_each(|ends| *ends = latest.min(*ends));
            let latest = now + self.longest_heartbeat_timeout;
            self.clients.values_mut().for_each(|until| *until = latest.min(*until));
        }
        self.permits.retain(|_, ends| *ends > now);
    }
}
