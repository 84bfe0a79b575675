//! The invariants, read off the keys themselves after every step.

use std::collections::{BTreeMap, BTreeSet};

use super::system::System;
use test_support::contents::{Contents, ensure};
use test_support::scripts::weight;

/// What earlier steps left to compare with.
#[derive(Debug, Default)]
pub struct Watch {
    permits: BTreeMap<String, i64>,
    /// For each permit the largest limit in force since it was granted.
    largest_limit: BTreeMap<String, i64>,
    released: BTreeSet<String>,
    pub last: i64,
}

impl Watch {
    pub fn released(&mut self, ids: &[String]) {
        self.released.extend(ids.iter().cloned());
    }

    /// One that another ID stands for from now on.
    pub fn exchanged(&mut self, id: &str, next: &str) {
        self.released.insert(id.to_owned());
        if let Some(limit) = self.largest_limit.get(id).copied() {
            self.largest_limit.insert(next.to_owned(), limit);
        }
    }

    /// Without `state`, a server has only its clock to go by.
    pub fn lost(&mut self, key: usize) {
        match key {
            0 => self.permits.clear(),
            3 => self.last = 0,
            _ => {}
        }
    }
}

impl System {
    pub fn check_invariants(&mut self) -> Result<(), String> {
        let contents = Contents::read(&mut self.scripts);
        self.check_weight(&contents)?;
        self.check_removals(&contents)?;
        self.check_numbers(&contents)?;
        // S3 follows from the comparison with the model, which has the same queue.
        let queue = contents.queue.iter().map(|(id, ticket)| (*ticket, id.clone()));
        ensure(queue.collect::<BTreeSet<_>>().iter().eq(self.model.queue.iter()), || {
            format!("the queue is {:?}, the model says {:?}", contents.queue, self.model.queue)
        })?;
        ensure(contents.clients == self.model.clients, || {
            format!("heard of {:?}, the model says {:?}", contents.clients, self.model.clients)
        })?;
        ensure(contents.marks == self.model.marks, || {
            format!("marks {:?}, the model says {:?}", contents.marks, self.model.marks)
        })?;
        contents.check_bookkeeping()?;
        contents.check_expiry(self.now, &self.scripts.keys)
    }

    /// S1
    fn check_weight(&mut self, contents: &Contents) -> Result<(), String> {
        let (now, limit) = (self.now, self.model.limit());
        let largest = &mut self.watch.largest_limit;
        // Ended ones stay in mind, too: the clock may step back to before their end.
        largest.retain(|id, _| contents.permits.contains_key(id));
        for id in contents.permits.keys() {
            let known = largest.entry(id.clone()).or_insert(limit);
            *known = limit.max(*known);
        }
        let held: i64 = contents.live(now).map(|id| weight(id)).sum();
        let allowed = contents.live(now).map(|id| largest[id]).max().unwrap_or(0).max(limit);
        ensure(held <= allowed, || format!("S1: {held} held, the largest limit was {allowed}"))?;
        ensure(contents.permits == self.model.permits, || {
            format!("{:?} hold, the model says {:?}", contents.permits, self.model.permits)
        })
    }

    /// S2
    fn check_removals(&mut self, contents: &Contents) -> Result<(), String> {
        let now = self.now;
        for (id, ends) in &self.watch.permits {
            let may_go = *ends <= now || self.watch.released.contains(id);
            ensure(contents.permits.contains_key(id) || may_go, || {
                format!("S2: {id} was removed")
            })?;
        }
        self.watch.permits = contents.permits.clone();
        self.watch.released.clear();
        Ok(())
    }

    /// S4. That each grant has a larger number than the one before follows from the comparison
    /// with the model; that the numbers outlive keys and clocks is seen here.
    fn check_numbers(&mut self, contents: &Contents) -> Result<(), String> {
        if contents.last() > 0 {
            let (last, before) = (contents.last(), self.watch.last);
            ensure(last >= before, || format!("S4: {last} after {before}"))?;
            self.watch.last = last;
        }
        Ok(())
    }

    /// S5, after a script: nobody waits, or there is no room for the first.
    pub fn check_head(&self) -> Result<(), String> {
        let (model, limit) = (&self.model, self.model.limit());
        let Some(head) = model.queue.head() else { return Ok(()) };
        let held = model.held_at(model.now());
        let is_right = held >= limit || held + weight(head) > limit;
        ensure(is_right, || format!("S5: {head} waits, {held} of {limit} are held"))
    }
}
