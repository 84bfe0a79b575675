//! What the four keys of a semaphore hold, read past the scripts, and whether it fits together.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use redis::{FromRedisValue, Value};

use super::clock::CLOCK_LAG;
use super::scripts::Scripts;

/// Ids as they are in Redis, a char for each byte: they need not be UTF-8.
#[derive(Debug, Default, Clone)]
pub struct Contents {
    /// The end of each lease.
    pub permits: BTreeMap<String, i64>,
    /// The ticket of each request.
    pub queue: BTreeMap<String, i64>,
    pub waiting: HashMap<String, String>,
    pub state: HashMap<String, String>,
    /// As PTTL answers, for each of the keys.
    expiries: Vec<i64>,
}

#[derive(PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Text(String);

impl FromRedisValue for Text {
    fn from_redis_value(value: Value) -> Result<Self, redis::ParsingError> {
        let bytes: Vec<u8> = redis::from_redis_value(value)?;
        Ok(Self(bytes.into_iter().map(char::from).collect()))
    }
}

impl Contents {
    pub fn read(scripts: &mut Scripts) -> Self {
        let keys = &scripts.keys;
        let mut pipeline = redis::pipe();
        pipeline.zrange_withscores(&keys[0], 0, -1).zrange_withscores(&keys[1], 0, -1);
        pipeline.hgetall(&keys[2]).hgetall(&keys[3]);
        for key in keys {
            pipeline.pttl(key);
        }
        type Sorted = Vec<(Text, i64)>;
        type Hash = HashMap<Text, Text>;
        type Reply = (Sorted, Sorted, Hash, Hash, i64, i64, i64, i64);
        let reply: Reply = pipeline.query(&mut scripts.connection).unwrap();
        let (permits, queue, waiting, state, p, q, w, s) = reply;
        let sorted = |pairs: Sorted| pairs.into_iter().map(|(id, score)| (id.0, score)).collect();
        let hash = |pairs: Hash| pairs.into_iter().map(|(field, value)| (field.0, value.0));
        Self {
            permits: sorted(permits),
            queue: sorted(queue),
            waiting: hash(waiting).collect(),
            state: hash(state).collect(),
            expiries: vec![p, q, w, s],
        }
    }

    pub fn weight(&self, id: &str) -> i64 {
        if id.starts_with('+') {
            return 0;
        }
        self.state.get(&format!("w:{id}")).map_or(1, |weight| weight.parse().unwrap())
    }

    fn number(&self, field: &str) -> Option<i64> {
        self.state.get(field).map(|value| value.parse().unwrap())
    }

    pub fn limit(&self) -> i64 {
        self.number("runtime").or(self.number("declared")).unwrap_or(0)
    }

    pub fn sequence(&self) -> i64 {
        self.number("sequence").unwrap_or(0)
    }

    /// The permits whose lease has not ended.
    pub fn live(&self, now: i64) -> impl Iterator<Item = &String> {
        self.permits.iter().filter(move |(_, ends)| **ends > now).map(|(id, _)| id)
    }

    /// L2: nothing stays for ever, and nothing goes while it is used.
    pub fn check_expiry(&self, now: i64, keys: &[String]) -> Result<(), String> {
        let last_lease = self.permits.values().map(|ends| ends - now).max().unwrap_or(0);
        for (key, ttl) in keys.iter().zip(&self.expiries) {
            let kept = key.ends_with("state") && self.state.contains_key("runtime");
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

    /// That the keys agree with each other.
    pub fn check_bookkeeping(&self) -> Result<(), String> {
        self.check_weights()?;
        let waiting: BTreeSet<_> = self.waiting.keys().collect();
        let queue: BTreeSet<_> = self.queue.keys().collect();
        ensure(waiting == queue, || format!("queue {queue:?}, waiting {waiting:?}"))?;
        let both = self.queue.keys().find(|id| self.permits.contains_key(*id));
        ensure(both.is_none(), || format!("{both:?} holds and waits"))
    }

    fn check_weights(&self) -> Result<(), String> {
        if self.permits.is_empty() {
            // The key may have just expired: the next script that finds it empty starts anew.
            return Ok(());
        }
        let number = |field: &str| self.number(field).unwrap_or(0);
        let extra: i64 = self.permits.keys().map(|id| (self.weight(id) - 1).max(0)).sum();
        ensure(number("extra") == extra, || format!("extra is {}, not {extra}", number("extra")))?;
        let marks = self.permits.keys().filter(|id| id.starts_with('+')).count() as i64;
        ensure(number("marks") == marks, || format!("marks is {}, not {marks}", number("marks")))?;
        for field in self.state.keys().filter_map(|field| field.strip_prefix("w:")) {
            ensure(self.permits.contains_key(field), || format!("weight of nobody: {field}"))?;
        }
        Ok(())
    }
}

pub fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}
