//! The invariants S1 to S5 and L2, read off the keys themselves after every step.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::system::{CLOCK_LAG, System};

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

struct Contents {
    permits: BTreeMap<String, i64>,
    queue: Vec<(String, i64)>,
    waiting: HashMap<String, String>,
    state: HashMap<String, String>,
    expiries: Vec<i64>,
}

impl Contents {
    fn read(system: &mut System) -> Self {
        let keys = system.scripts.keys.clone();
        let mut pipeline = redis::pipe();
        pipeline.zrange_withscores(&keys[0], 0, -1).zrange_withscores(&keys[1], 0, -1);
        pipeline.hgetall(&keys[2]).hgetall(&keys[3]);
        for key in &keys {
            pipeline.pttl(key);
        }
        type Reply = (
            Vec<(String, i64)>,
            Vec<(String, i64)>,
            HashMap<String, String>,
            HashMap<String, String>,
            i64,
            i64,
            i64,
            i64,
        );
        let reply: Reply = pipeline.query(&mut system.scripts.connection).unwrap();
        let (permits, queue, waiting, state, p, q, w, s) = reply;
        let permits = permits.into_iter().collect();
        Self { permits, queue, waiting, state, expiries: vec![p, q, w, s] }
    }

    fn weight(&self, id: &str) -> i64 {
        if id.starts_with('+') {
            return 0;
        }
        self.state.get(&format!("w:{id}")).map_or(1, |weight| weight.parse().unwrap())
    }
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

impl System {
    pub fn check_invariants(&mut self) -> Result<(), String> {
        let contents = Contents::read(self);
        self.check_weight(&contents)?;
        self.check_removals(&contents)?;
        self.check_sequence(&contents)?;
        check_bookkeeping(&contents)?;
        self.check_expiry(&contents)
    }

    /// S1
    fn check_weight(&mut self, contents: &Contents) -> Result<(), String> {
        let (now, limit) = (self.now, self.model.limit());
        let live: Vec<_> = contents.permits.iter().filter(|(_, ends)| **ends > now).collect();
        let largest = &mut self.watch.largest_limit;
        // Ended ones stay in mind, too: the clock may step back to before their end.
        largest.retain(|id, _| contents.permits.contains_key(id));
        for id in contents.permits.keys() {
            let known = largest.entry(id.clone()).or_insert(limit);
            *known = limit.max(*known);
        }
        let held: i64 = live.iter().map(|(id, _)| contents.weight(id)).sum();
        let allowed = live.iter().map(|(id, _)| largest[*id]).max().unwrap_or(0).max(limit);
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
        if let Some(sequence) = contents.state.get("sequence") {
            let sequence: i64 = sequence.parse().unwrap();
            let before = self.watch.sequence;
            ensure(sequence >= before, || format!("S4: {sequence} after {before}"))?;
            self.watch.sequence = sequence;
        }
        Ok(())
    }

    /// L2: nothing stays for ever, and nothing goes while it is used.
    fn check_expiry(&mut self, contents: &Contents) -> Result<(), String> {
        let now = self.now;
        let last_lease = contents.permits.values().map(|ends| ends - now).max().unwrap_or(0);
        for (key, ttl) in self.scripts.keys.iter().zip(&contents.expiries) {
            let kept = key.ends_with("state") && contents.state.contains_key("runtime");
            match ttl {
                -2 => {}
                -1 => ensure(kept, || format!("L2: {key} has no expiry"))?,
                _ => ensure(!kept && ttl + CLOCK_LAG.end / 1000 >= last_lease, || {
                    format!("{key} expires in {ttl} ms, a lease ends in {last_lease} ms")
                })?,
            }
        }
        Ok(())
    }
}

/// S3 and S5 follow from the comparison with the model: here, that the keys agree with each other.
fn check_bookkeeping(contents: &Contents) -> Result<(), String> {
    check_weights(contents)?;
    let waiting: BTreeSet<_> = contents.waiting.keys().cloned().collect();
    let queue: BTreeSet<_> = contents.queue.iter().map(|(id, _)| id.clone()).collect();
    ensure(waiting == queue, || format!("queue {queue:?}, waiting {waiting:?}"))?;
    let both = contents.queue.iter().find(|(id, _)| contents.permits.contains_key(id));
    ensure(both.is_none(), || format!("{both:?} holds and waits"))
}

fn check_weights(contents: &Contents) -> Result<(), String> {
    if contents.permits.is_empty() {
        // The key may have just expired: the next script that finds it empty starts anew.
        return Ok(());
    }
    let number = |field: &str| -> i64 {
        contents.state.get(field).map_or(0, |value| value.parse().unwrap())
    };
    let extra: i64 = contents.permits.keys().map(|id| (contents.weight(id) - 1).max(0)).sum();
    ensure(number("extra") == extra, || format!("extra is {}, not {extra}", number("extra")))?;
    let marks = contents.permits.keys().filter(|id| id.starts_with('+')).count() as i64;
    ensure(number("marks") == marks, || format!("marks is {}, not {marks}", number("marks")))?;
    for field in contents.state.keys().filter_map(|field| field.strip_prefix("w:")) {
        ensure(contents.permits.contains_key(field), || format!("weight of nobody: {field}"))?;
    }
    Ok(())
}
