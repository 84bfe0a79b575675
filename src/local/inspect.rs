//! As `lua/inspect.lua`: who holds and who waits.

use super::{Semaphore, id};

/// The reply of `inspect`.
#[derive(Debug, PartialEq)]
pub struct Inspected {
    /// Time, limit, declared, runtime, held, how many hold, how many wait, the last number.
    pub numbers: [i64; 8],
    /// ID, and ms left.
    pub holders: Vec<(String, i64)>,
    /// ID, ms waited, ms for which its client is taken to be there.
    pub waiters: Vec<(String, i64, i64)>,
}

/// How many to leave out, and how many to tell.
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
            self.queue.iter().len() as i64,
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
