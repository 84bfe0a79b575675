//! The counterpart of `lua/inspect.lua`: lists holders and waiters.

use std::collections::BTreeSet;

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
    pub groups: InspectedGroups,
}

/// The number of queued requests that have a group, the larger of the numbers of groups that wait
/// and that hold a permit, and the groups.
pub type InspectedGroups = (i64, i64, Vec<InspectedGroup>);

/// The group, the held weight, the number of queued requests, of the first of them, the ms waited
/// and the ID, and the runtime cap.
pub type InspectedGroup = (String, i64, i64, i64, String, i64);

/// The number of entries to skip, and to return.
pub(super) type Page = (usize, usize);

impl Semaphore {
    pub(super) fn inspect(&self, holders: Page, waiters: Page, groups: Page) -> Inspected {
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
        let waiter = |entry: &(i64, String)| {
            let id = &entry.1;
            let until = self.clients.get(id::client(id)).copied().unwrap_or(0);
            (id.clone(), self.waited(entry), (until - now).max(-1))
        };
        Inspected {
            numbers,
            holders: live.into_iter().skip(holders.0).take(holders.1).map(holder).collect(),
            waiters: self.queue.iter().skip(waiters.0).take(waiters.1).map(waiter).collect(),
            groups: self.inspect_groups(groups),
        }
    }

    fn inspect_groups(&self, (skipped, count): Page) -> InspectedGroups {
        let grouped = self.queue.len() - self.queue.line("").count();
        let waiting = match self.turns.virtual_time {
            Some(_) => self.turns.waiting(),
            None => Vec::from_iter((!self.queue.is_empty()).then_some("")),
        };
        let names: BTreeSet<_> = self.permits.keys().map(|id| id::group(id)).collect();
        let named = names.into_iter().filter(|name| !name.is_empty());
        let mut holding: Vec<_> = named.map(|name| (-self.held_by(name), name)).collect();
        holding.sort();
        let total = waiting.len().max(holding.len()) as i64;
        let page = |names: Vec<&str>| {
            let page = names.into_iter().skip(skipped).take(count);
            page.map(str::to_owned).collect::<Vec<_>>()
        };
        let holding = page(holding.into_iter().map(|(_, name)| name).collect());
        let only_hold = holding.into_iter().filter(|name| self.turns.turn(name) <= 0.0);
        let is_idle = |name: &&String| self.held_by(name) == 0 && self.turns.turn(name) <= 0.0;
        let capped = self.caps.keys().filter(is_idle).filter(|_| skipped == 0 && count > 0);
        let names = page(waiting).into_iter().chain(only_hold).chain(capped.cloned());
        (grouped as i64, total, names.map(|name| self.inspect_group(name)).collect())
    }

    fn inspect_group(&self, name: String) -> InspectedGroup {
        let now = self.now();
        let live = self.permits.iter().filter(|(id, ends)| **ends > now && id::group(id) == name);
        let held = if name.is_empty() { -1 } else { live.map(|(id, _)| id::weight(id)).sum() };
        let queued = self.queue.line(&name).count() as i64;
        let first = self.queue.line(&name).next();
        let waited = first.map_or(-1, |entry| self.waited(entry));
        let cap = self.caps.get(&name).copied().unwrap_or(-1);
        let id = first.map(|(_, id)| id.clone()).unwrap_or_default();
        (name, held, queued, waited, id, cap)
    }

    fn waited(&self, (ticket, id): &(i64, String)) -> i64 {
        (self.now() - ticket / 1000).saturating_sub(id::head_start(id)).max(0)
    }
}
