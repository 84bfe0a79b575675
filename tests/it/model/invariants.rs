//! The invariants S1 to S5 and L2, read off the keys themselves after every step.

use std::collections::{BTreeMap, BTreeSet};

use super::system::System;
use crate::support::contents::{Contents, ensure};

/// What earlier steps left to compare with.
#[derive(Debug, Default)]
pub struct Watch {
    permits: BTreeMap<String, i64>,
    /// For each permit the largest limit in force since it was granted.
    largest_limit: BTreeMap<String, i64>,
    released: BTreeSet<String>,
    pub sequence: i64,
}

impl Watch {
    pub fn released(&mut self, ids: &[String]) {
        self.released.extend(ids.iter().cloned());
    }

    /// A server that lost all data has only its clock to go by.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

impl System {
    pub fn check_invariants(&mut self) -> Result<(), String> {
        let contents = Contents::read(&mut self.scripts);
        self.check_weight(&contents)?;
        self.check_removals(&contents)?;
        self.check_sequence(&contents)?;
        // S3 and S5 follow from the comparison with the model.
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
        let held: i64 = contents.live(now).map(|id| contents.weight(id)).sum();
        let allowed = contents.live(now).map(|id| largest[id]).max().unwrap_or(0).max(limit);
        ensure(held <= allowed, || format!("S1: {held} held, the largest limit was {allowed}"))?;
        let modelled = self.model.held_at(now);
        ensure(held == modelled, || format!("{held} held, the model says {modelled}"))
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
    /// with the model; that the sequence outlives keys and clocks is seen here.
    fn check_sequence(&mut self, contents: &Contents) -> Result<(), String> {
        if contents.state.contains_key("sequence") {
            let (sequence, before) = (contents.sequence(), self.watch.sequence);
            ensure(sequence >= before, || format!("S4: {sequence} after {before}"))?;
            self.watch.sequence = sequence;
        }
        Ok(())
    }
}
