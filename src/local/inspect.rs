//! As `lua/inspect.lua`: who holds and who waits.

use super::{Semaphore, word};

/// The reply of `inspect`.
#[derive(Debug, PartialEq)]
pub struct Inspected {
    /// Time, limit, declared, runtime, held, how many hold, how many wait, the last number.
    pub numbers: [i64; 8],
    /// Word, and ms left.
    pub holders: Vec<(String, i64)>,
    /// Word, ms waited, ms for which its client is taken to be there.
    pub waiters: Vec<(String, i64, i64)>,
}

/// How many to leave out, and how many to tell.
pub(super) type Page = (usize, usize);

impl Semaphore {
    pub(super) fn inspect(&self, holders: Page, waiters: Page) -> Inspected {
        let now = self.now();
        let live = self.permits.iter().filter(|(_, ends)| **ends > now);
        let mut live: Vec<_> = live.map(|(word, ends)| (ends - now, word)).collect();
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
        let holder = |(left, word): (i64, &String)| (word.clone(), left);
        let waiter = |(ticket, word): &(i64, String)| {
            let until = self.clients.get(word::client(word)).copied().unwrap_or(0);
            let waited = (now - ticket / 1000).saturating_sub(word::ahead(word)).max(0);
            (word.clone(), waited, (until - now).max(-1))
        };
        Inspected {
            numbers,
            holders: live.into_iter().skip(holders.0).take(holders.1).map(holder).collect(),
            waiters: self.queue.iter().skip(waiters.0).take(waiters.1).map(waiter).collect(),
        }
    }
}
