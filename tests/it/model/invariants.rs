//! Checks the invariants in the keys after every step.

use std::collections::{BTreeMap, BTreeSet};

use super::system::{Model, System};
use test_support::contents::{Contents, ensure};
use test_support::scripts::weight;

/// State of earlier steps, for comparison.
#[derive(Debug, Default)]
pub struct Watch {
    permits: BTreeMap<String, i64>,
    /// For each permit, the largest effective limit since it was granted.
    largest_limit: BTreeMap<String, i64>,
    released: BTreeSet<String>,
    /// Whether requests of groups may wait although permits are free, until they are asked for
    /// again: the turns, the permits or runtime caps were lost.
    may_wait: bool,
    pub last: i64,
}

impl Watch {
    pub fn released(&mut self, ids: &[String]) {
        self.released.extend(ids.iter().cloned());
    }

    /// Notes that the permit now has the ID `next`.
    pub fn exchanged(&mut self, id: &str, next: &str) {
        self.released.insert(id.to_owned());
        if let Some(limit) = self.largest_limit.get(id).copied() {
            self.largest_limit.insert(next.to_owned(), limit);
        }
    }

    /// Notes that the model is about to lose a key. Without `state`, the server takes new numbers
    /// only from its clock.
    pub fn loses(&mut self, key: usize, model: &Model) {
        match key {
            0 => {
                self.permits.clear();
                self.may_wait = true;
            }
            3 => {
                self.last = 0;
                self.may_wait |= !model.caps.is_empty();
            }
            5 => self.may_wait = true,
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
        // The comparison with the model implies S3 (the strict order), because the model has the
        // same queue.
        let queue = contents.queue.iter().map(|(id, ticket)| (*ticket, id.clone()));
        let model: BTreeSet<_> = self.model.queue.iter().cloned().collect();
        ensure(queue.collect::<BTreeSet<_>>() == model, || {
            format!("the queue is {:?}, the model says {:?}", contents.queue, self.model.queue)
        })?;
        ensure(contents.turns == self.model.turns.starts, || {
            format!("turns: {:?}, the model says {:?}", contents.turns, self.model.turns)
        })?;
        ensure(contents.clients == self.model.clients, || {
            format!("alive: {:?}, the model says {:?}", contents.clients, self.model.clients)
        })?;
        ensure(contents.marks == self.model.marks, || {
            format!("marks {:?}, the model says {:?}", contents.marks, self.model.marks)
        })?;
        contents.check_bookkeeping()?;
        contents.check_expiry(self.now, &self.scripts.keys)
    }

    /// Checks S1: the weight held is limited.
    fn check_weight(&mut self, contents: &Contents) -> Result<(), String> {
        let (now, limit) = (self.now, self.model.limit());
        let largest = &mut self.watch.largest_limit;
        // Expired permits are kept, too: the clock may step back to a time before their expiry.
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

    /// Checks S2: only certain calls, or an expiry, remove a permit.
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

    /// Checks S4. The comparison with the model shows that each grant has a larger number than the
    /// grant before it. This check shows that the numbers survive lost keys and clock steps.
    fn check_numbers(&mut self, contents: &Contents) -> Result<(), String> {
        if contents.last() > 0 {
            let (last, before) = (contents.last(), self.watch.last);
            ensure(last >= before, || format!("S4: {last} after {before}"))?;
            self.watch.last = last;
        }
        Ok(())
    }

    /// Checks S5 after a script: the queue is empty, or its head does not fit.
    pub fn check_head(&self) -> Result<(), String> {
        let (model, limit) = (&self.model, self.model.limit());
        let held = model.held_at(model.now());
        if let Some(head) = model.head() {
            let is_right = held >= limit || held + weight(head) > limit;
            return ensure(is_right, || format!("S5: {head} waits, {held} of {limit} are held"));
        }
        let may_wait = held >= limit || model.queue.is_empty() || self.watch.may_wait;
        ensure(may_wait || model.groups_are_at_their_caps(), || {
            format!("S5: {held} of {limit} are held, but {:?} wait", model.queue)
        })
    }
}
