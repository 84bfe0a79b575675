//! The contents of a semaphore's keys, read without the scripts, and checks of their
//! consistency.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use redis::{FromRedisValue, Value};

use super::clock::CLOCK_LEAD;
use super::scripts::{Scripts, part, weight};

/// The contents of the keys. An ID has one char for each byte, because a forged ID need not be
/// UTF-8. The member "*" of `permits` is the field `extra`. The member "*" of `clients` is omitted.
#[derive(Debug, Default, Clone)]
pub struct Contents {
    pub permits: BTreeMap<String, i64>,
    pub queue: BTreeMap<String, i64>,
    /// The time until which each client counts as alive.
    pub clients: BTreeMap<String, i64>,
    /// The time until which each idempotency key is known.
    pub marks: BTreeMap<String, i64>,
    pub state: HashMap<String, String>,
    /// The sum of the weights, reduced by one for each permit, as the scripts store it.
    extra: Option<i64>,
    /// The weight that each group holds, as the scripts store it.
    held_by: BTreeMap<String, i64>,
    /// The entries of `order`.
    order: BTreeSet<String>,
    /// For each group, the start of its turn, or minus the end of its last turn.
    pub turns: BTreeMap<String, f64>,
    /// The reply of PTTL for each key.
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
        let keys = &scripts.all_keys;
        let mut pipeline = redis::pipe();
        for key in &keys[..3] {
            pipeline.zrange_withscores(key, 0, -1);
        }
        pipeline.hgetall(&keys[3]).zrange(&keys[4], 0, -1).zrange_withscores(&keys[5], 0, -1);
        type Sorted = Vec<(Text, i64)>;
        type Hash = HashMap<Text, Text>;
        type Reply = (Sorted, Sorted, Sorted, Hash, BTreeSet<Text>, Vec<(Text, f64)>);
        let reply: Reply = pipeline.query(&mut scripts.connection).unwrap();
        let (permits, queue, clients, state, order, turns) = reply;
        let ttl = |key| redis::cmd("PTTL").arg(key).query(&mut scripts.connection).unwrap();
        let expiries = scripts.all_keys.iter().map(ttl).collect();
        let sorted = |pairs: Sorted| -> BTreeMap<String, i64> {
            pairs.into_iter().map(|(member, score)| (member.0, score)).collect()
        };
        let (mut permits, mut clients) = (sorted(permits), sorted(clients));
        let extra = permits.remove("*").map(|score| -score);
        let (groups, permits) =
            permits.into_iter().partition::<BTreeMap<_, _>, _>(|it| it.0.starts_with('*'));
        clients.remove("*");
        // The score of an idempotency key is negative.
        let (clients, marks) = clients.into_iter().partition::<BTreeMap<_, _>, _>(|it| it.1 > 0);
        Self {
            permits,
            // The score of a request with a group is minus its ticket.
            queue: sorted(queue).into_iter().map(|(id, score)| (id, score.abs())).collect(),
            clients,
            marks: marks.into_iter().map(|(mark, score)| (mark, -score)).collect(),
            state: state.into_iter().map(|(field, value)| (field.0, value.0)).collect(),
            extra,
            held_by: groups
                .into_iter()
                .map(|(name, score)| (name[1..].to_owned(), -score))
                .collect(),
            order: order.into_iter().map(|entry| entry.0).filter(|entry| entry != "*").collect(),
            turns: turns
                .into_iter()
                .map(|(name, turn)| (name.0, turn))
                .filter(|it| it.0 != "*")
                .collect(),
            expiries,
        }
    }

    fn number(&self, field: &str) -> Option<i64> {
        self.state.get(field).map(|value| value.parse().unwrap())
    }

    pub fn limit(&self) -> i64 {
        self.number("runtime").or(self.number("declared")).unwrap_or(0)
    }

    pub fn last(&self) -> i64 {
        self.number("last_number").unwrap_or(0)
    }

    /// Returns the permits whose lease has not expired.
    pub fn live(&self, now: i64) -> impl Iterator<Item = &String> {
        self.permits.iter().filter(move |(_, ends)| **ends > now).map(|(id, _)| id)
    }

    /// Checks rule L2: no key stays forever, except a state with a runtime limit. No key expires
    /// before the last lease does.
    pub fn check_expiry(&self, now: i64, keys: &[String]) -> Result<(), String> {
        let last_lease = self.permits.values().map(|ends| ends - now).max().unwrap_or(0);
        for (key, ttl) in keys.iter().zip(&self.expiries) {
            let kept = key.ends_with("state") && self.state.contains_key("runtime");
            match ttl {
                -2 => {}
                -1 => ensure(kept, || format!("L2: {key} has no expiry"))?,
                _ => ensure(!kept && ttl + CLOCK_LEAD.end / 1000 >= last_lease, || {
                    format!("{key} expires in {ttl} ms, a lease ends in {last_lease} ms")
                })?,
            }
        }
        Ok(())
    }

    /// Checks that the keys are consistent with each other.
    pub fn check_bookkeeping(&self) -> Result<(), String> {
        let extra: i64 = self.permits.keys().map(|id| weight(id) - 1).sum();
        ensure(self.extra.unwrap_or(0) == extra, || {
            format!("extra is {:?}, not {extra}: {:?}", self.extra, self.permits)
        })?;
        let mut held_by: BTreeMap<String, i64> = BTreeMap::new();
        for id in self.permits.keys().filter(|id| group(id).is_some()) {
            *held_by.entry(group(id).unwrap().to_owned()).or_default() += weight(id);
        }
        ensure(self.held_by == held_by, || {
            format!("groups hold {:?}, not {held_by:?}", self.held_by)
        })?;
        let entry =
            |(id, ticket): (&String, &i64)| Some(format!("{}:{ticket:016}:{id}", group(id)?));
        let missing = self.queue.iter().filter_map(entry).find(|entry| !self.order.contains(entry));
        ensure(missing.is_none(), || format!("{missing:?} is not in order: {:?}", self.order))?;
        let both = self.queue.keys().find(|id| self.permits.contains_key(*id));
        ensure(both.is_none(), || format!("{both:?} holds and waits"))
    }
}

/// The name of the ID's group.
fn group(id: &str) -> Option<&str> {
    Some(part(id, 4).split_once(',')?.0)
}

pub fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}
