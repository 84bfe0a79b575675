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
    pub fn released(&mut self, words: &[String]) {
        self.released.extend(words.iter().cloned());
    }

    /// One that another word stands for from now on.
    pub fn exchanged(&mut self, word: &str, next: &str) {
        self.released.insert(word.to_owned());
        if let Some(limit) = self.largest_limit.get(word).copied() {
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
        let queue = contents.queue.iter().map(|(word, ticket)| (*ticket, word.clone()));
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
        largest.retain(|word, _| contents.permits.contains_key(word));
        for word in contents.permits.keys() {
            let known = largest.entry(word.clone()).or_insert(limit);
            *known = limit.max(*known);
        }
        let held: i64 = contents.live(now).map(|word| weight(word)).sum();
        let allowed = contents.live(now).map(|word| largest[word]).max().unwrap_or(0).max(limit);
        ensure(held <= allowed, || format!("S1: {held} held, the largest limit was {allowed}"))?;
        ensure(contents.permits == self.model.permits, || {
            format!("{:?} hold, the model says {:?}", contents.permits, self.model.permits)
        })
    }

    /// S2
    fn check_removals(&mut self, contents: &Contents) -> Result<(), String> {
        let now = self.now;
        for (word, ends) in &self.watch.permits {
            let may_go = *ends <= now || self.watch.released.contains(word);
            ensure(contents.permits.contains_key(word) || may_go, || {
                format!("S2: {word} was removed")
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
