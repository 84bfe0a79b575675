//! The state of a semaphore. Times are in ms on the server's clock, unless a name ends in `_us`.

use std::collections::{BTreeMap, BTreeSet};

use super::id;
use super::queue::Queue;
use super::turns::Turns;

#[derive(Debug, Default, Clone)]
pub struct Semaphore {
    /// The server's time.
    pub now_us: i64,
    /// The clients that a message reaches.
    pub listening: BTreeSet<String>,
    pub declared: Option<i64>,
    pub runtime: Option<i64>,
    /// The runtime caps of groups.
    pub caps: BTreeMap<String, i64>,
    /// No token or ticket that was issued is higher.
    pub last: i64,
    /// An upper bound of all current leases.
    pub longest_lease: i64,
    /// The expiry of each lease.
    pub permits: BTreeMap<String, i64>,
    pub queue: Queue,
    pub turns: Turns,
    /// The time at which each client counts as dead.
    pub clients: BTreeMap<String, i64>,
    /// The longest heartbeat timeout of any client.
    pub longest_heartbeat_timeout: i64,
    /// The expiry of each idempotency key.
    pub marks: BTreeMap<String, i64>,
    /// The IDs whose leases start in this call, with the leases.
    pub(super) granted: Vec<(String, i64)>,
    /// The IDs that leave the queue in this call, and whose clients are notified.
    pub(super) notified: Vec<String>,
    /// The lines to send to each client.
    pub(super) messages: BTreeMap<String, Vec<String>>,
}

impl Semaphore {
    pub fn now(&self) -> i64 {
        self.now_us / 1000
    }

    /// Whether anything was ever written.
    pub fn is_used(&self) -> bool {
        self.known_limit().is_some() || self.last > 0 || self.turns.virtual_time.is_some()
    }

    pub(super) fn known_limit(&self) -> Option<i64> {
        self.runtime.or(self.declared)
    }

    /// The effective limit.
    pub fn limit(&self) -> i64 {
        self.known_limit().unwrap_or(0)
    }

    /// Returns the declared and the runtime limit after a client's configuration is applied.
    pub(super) fn configured(&self, kind: &str, limit: i64) -> (Option<i64>, Option<i64>) {
        let is_known = self.known_limit().is_some();
        match kind {
            "declare" => (Some(limit), self.runtime),
            "declare_if_unset" if !is_known => (Some(limit), None),
            "initial" if !is_known => (None, Some(limit)),
            _ => (self.declared, self.runtime),
        }
    }

    /// The weight of all permits whose leases have not expired at the time `now`.
    pub fn held_at(&self, now: i64) -> i64 {
        let live = self.permits.iter().filter(|(_, ends)| **ends > now);
        live.map(|(id, _)| id::weight(id)).sum()
    }

    /// The weight of all permits, after a [`purge`](Self::purge).
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

    /// Whether the clock was set back: the clock is more than 1 s behind the last number. Many
    /// simultaneous calls also raise the last number above the clock, but by less than 1 s.
    pub(super) fn is_set_back(&self) -> bool {
        self.last > self.now_us + 1_000_000
    }

    /// The time in ms after which `wake` should be called, or -1.
    pub(super) fn wake_in(&self) -> i64 {
        let ends = self.permits.values().map(|ends| ends - self.now()).min();
        ends.map_or(-1, |ms| ms.max(1))
    }

    /// The number of waiting clients that have missed no heartbeat.
    pub(super) fn crowd(&self, heartbeat_timeout: i64) -> i64 {
        let since = self.now() + heartbeat_timeout * 3 / 5;
        self.clients.values().filter(|until| **until >= since).count() as i64
    }

    /// Records a heartbeat. If the client is new, removes up to two dead clients.
    pub(super) fn record_heartbeat(&mut self, client: &str, heartbeat_timeout: i64) {
        let is_new = !self.clients.contains_key(client);
        let (now, until) = (self.now(), self.now() + heartbeat_timeout);
        let alive_until = self.clients.entry(client.to_owned()).or_insert(until);
        *alive_until = until.max(*alive_until);
        self.longest_heartbeat_timeout = self.longest_heartbeat_timeout.max(heartbeat_timeout);
        self.is_written_now();
        if is_new {
            remove_two(&mut self.clients, |until| (until < now).then_some(until));
        }
    }

    /// Records an idempotency key, and removes up to two expired keys.
    pub(super) fn remember(&mut self, mark: &str, lease: i64) {
        let now = self.now();
        self.marks.insert(mark.to_owned(), now + lease);
        self.is_written_now();
        remove_two(&mut self.marks, |until| (until <= now).then_some(-until));
    }

    /// Raises the last number to almost the current time, to detect later that the clock was set
    /// back.
    fn is_written_now(&mut self) {
        self.last = self.last.max(self.now_us - 1);
    }

    /// Removes expired leases. If the clock was set back, shortens times that are later than
    /// possible.
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

/// Removes the first two entries. `place` returns the place of an entry that may be removed.
fn remove_two(entries: &mut BTreeMap<String, i64>, place: impl Fn(i64) -> Option<i64>) {
    let placed = entries.iter().filter_map(|(name, until)| Some((place(*until)?, name.clone())));
    let mut placed: Vec<_> = placed.collect();
    placed.sort();
    for (_, name) in placed.into_iter().take(2) {
        entries.remove(&name);
    }
}
