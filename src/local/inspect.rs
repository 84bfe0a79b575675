//! The counterpart of `lua/inspect.lua`: lists holders and waiters.

use super::{Semaphore, id};

/// The reply of `inspect`.
#[derive(Debug, PartialEq)]
pub struct Inspected {
    /// The time, the effective, declared and runtime limit, the held weight, the number of holders
    /// and of waiters, and the last number.
    pub numbers: [i64; 8],
    /// The ID, and the remaining ms of the lease.
    pub holders: Vec<(String, i64)>,
    /// The ID, the ms waited, and the ms until the client counts as dead.
    pub waiters: Vec<(String, i64, i64)>,
}

/// The number of entries to skip, and to return.
pub(super) type Page = (usize, usize);

impl Semaphore {
    pub(super) fn inspect(&self, holders: Page, waiters: Page) -> Inspected {
        let now = self.now();
        let live = self.permits.iter().filter(|(_, ends)| **ends > now);
        let mut live: Vec<_> = live.map(|(id, ends)| (ends - now, id)).collect();
        live.sort();
        let none = |limit: Option<i64>| limit.unwrap_or(-1);
        let numbers = [
            now,
            none(self.known_limit()),
            none(self.declared),
            none(self.runtime),
            self.held_at(now),
            live.len() as i64,
            self.queue.len() as i64,
            self.last,
        ];
        let holder = |(left, id): (i64, &String)| (id.clone(), left);
        let waiter = |(ticket, id): &(i64, String)| {
            let until = self.clients.get(id::client(id)).copied().unwrap_or(0);
            let waited = (now - ticket / 1000).saturating_sub(id::head_start(id)).max(0);
            (id.clone(), waited, (until - now).max(-1))
        };
        Inspected {
            numbers,
            holders: live.into_iter().skip(holders.0).take(holders.1).map(holder).collect(),
            waiters: self.queue.iter().skip(waiters.0).take(waiters.1).map(waiter).collect(),
        }
    }
}
