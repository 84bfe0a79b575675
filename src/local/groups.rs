//! The counterpart of `lua/lib/groups.lua`: the turns and the caps of groups.

use std::collections::BTreeSet;

use super::serve::Served;
use super::turns::later;
use super::{Refusal, Semaphore, id};

/// The maximum number of runtime caps.
const MAX_CAPS: usize = 100;

impl Semaphore {
    /// Called at the beginning of each call.
    pub(super) fn note_held_by_groups(&mut self) {
        self.turns.held_before.clear();
        for id in self.permits.keys().filter(|id| !id::group(id).is_empty()) {
            *self.turns.held_before.entry(id::group(id).to_owned()).or_default() += id::weight(id);
        }
    }

    /// Called before the first request with a group is queued or granted.
    pub(super) fn begin_groups(&mut self) {
        if self.turns.virtual_time.is_none() {
            self.turns.virtual_time = Some(1.0);
            if !self.queue.is_empty() {
                self.turns.set_turn("", 1.0);
            }
        }
    }

    /// The weight of all permits of a group, including expired permits that were not removed yet.
    pub fn held_by(&self, group: &str) -> i64 {
        let permits = self.permits.keys().filter(|id| id::group(id) == group);
        permits.map(|id| id::weight(id)).sum()
    }

    pub(super) fn exceeds_cap(&self, id: &str, weight: i64) -> bool {
        let cap = self.caps.get(id::group(id)).copied().or(id::cap(id));
        cap.is_some_and(|cap| self.held_by(id::group(id)) + weight > cap)
    }

    /// Sets the runtime cap of a group, or clears it.
    pub(super) fn set_cap(&mut self, group: &str, cap: Option<i64>) -> Result<(), Refusal> {
        if cap.is_some() && self.caps.len() >= MAX_CAPS && !self.caps.contains_key(group) {
            let wanted = "one of the 100 groups that have runtime caps: clear another";
            return Err(Refusal::argument(5, "group", wanted, group));
        }
        self.begin_groups();
        match cap {
            Some(cap) => _ = self.caps.insert(group.to_owned(), cap),
            None => _ = self.caps.remove(group),
        }
        if self.turns.turn(group).is_infinite() {
            let now = self.turns.virtual_time.unwrap_or_default();
            self.turns.set_turn(group, now);
        }
        Ok(())
    }

    /// Enters a queued request into the turns. It may come before a request that did not fit the
    /// cap.
    pub(super) fn take_turn(&mut self, id: &str) {
        let Some(virtual_time) = self.turns.virtual_time else { return };
        let (group, turn) = (id::group(id), self.turns.turn(id::group(id)));
        if turn <= 0.0 {
            // Even if the group is at its cap, so that it cannot starve others.
            self.turns.set_turn(group, later(virtual_time, 1.0 / id::share(id)).max(-turn));
        } else if turn.is_infinite() && !self.exceeds_cap(id, id::weight(id)) {
            self.turns.set_turn(group, virtual_time);
        }
    }

    /// Removes a canceled request. Returns whether it was in the queue.
    pub(super) fn leave_queue(&mut self, id: &str) -> bool {
        let was_queued = self.queue.remove(id);
        if let Some(virtual_time) = self.turns.virtual_time
            && was_queued
        {
            let (group, turn) = (id::group(id), self.turns.turn(id::group(id)));
            if turn > 0.0 && self.queue.first(group).is_none() {
                self.turns.end_turns(group, if turn.is_infinite() { virtual_time } else { turn });
            } else if turn.is_infinite() {
                self.turns.set_turn(group, virtual_time);
            }
        }
        was_queued
    }

    /// Whether no waiting request comes before a request that is not in the queue.
    pub(super) fn is_next(&self, id: &str) -> bool {
        if self.turns.virtual_time.is_none() {
            return self.queue.is_empty();
        }
        let is_first = || self.turns.next().is_none() && self.turns.turn(id::group(id)) <= 0.0;
        !self.exceeds_cap(id, id::weight(id)) && (self.queue.is_empty() || is_first())
    }

    /// The request that is next.
    pub fn head(&self) -> Option<&str> {
        match self.turns.virtual_time {
            Some(_) => self.queue.first(self.turns.next()?.0),
            None => self.queue.first(""),
        }
    }

    /// Whether the first request of each group is dead, or exceeds the cap of its group.
    pub fn groups_are_at_their_caps(&self) -> bool {
        let first: BTreeSet<_> = self.queue.iter().map(|(_, id)| id::group(id)).collect();
        let mut first = first.into_iter().filter_map(|group| self.queue.first(group));
        first.all(|id| !self.is_alive(id) || self.exceeds_cap(id, id::weight(id)))
    }

    /// Serves in the order of the turns: see [`serve`](Self::serve).
    pub(super) fn serve_turns(&mut self, asked: &BTreeSet<&str>, sweeps: bool) {
        if self.queue.is_empty() {
            return;
        }
        for (group, before) in std::mem::take(&mut self.turns.held_before) {
            if self.held_by(&group) < before && self.turns.turn(&group).is_infinite() {
                let now = self.turns.virtual_time.unwrap_or_default();
                self.turns.set_turn(&group, now);
            }
        }
        let mut free = self.limit() - self.held();
        while (free > 0 || sweeps)
            && !self.queue.is_empty()
            && let Some((group, start)) = self.turns.next()
        {
            let group = group.to_owned();
            let first = self.queue.first(&group).map(str::to_owned);
            let served = match &first {
                Some(id) => self.serve_one(id, asked.contains(&**id), &mut free),
                None => Served::Leaves,
            };
            if let (Some(id), Served::Granted | Served::Leaves) = (&first, &served) {
                self.queue.remove(id);
            }
            if matches!(served, Served::Granted | Served::AtCap) {
                self.turns.virtual_time = self.turns.virtual_time.map(|now| now.max(start));
            }
            let end = match (&first, &served) {
                (Some(id), Served::Granted) => later(start, id::weight(id) as f64 / id::share(id)),
                _ => start,
            };
            match served {
                Served::Blocked => return,
                Served::AtCap => self.turns.set_turn(&group, f64::INFINITY),
                _ if self.queue.first(&group).is_none() => self.turns.end_turns(&group, end),
                _ => self.turns.set_turn(&group, end),
            }
        }
    }
}
