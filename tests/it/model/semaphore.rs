//! A small model of the protocol: what the scripts must answer, without keys, chunks or counters.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone)]
pub struct Permit {
    pub ends: i64,
    /// 0 for the mark of an `add`.
    pub weight: i64,
}

#[derive(Debug, Clone)]
pub struct Waiter {
    pub weight: i64,
    lease: i64,
    pub heard_until: i64,
    client: usize,
}

#[derive(Debug, Clone)]
pub struct Request {
    pub id: String,
    pub weight: i64,
    pub lease: i64,
    pub place: Place,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Place {
    Try,
    Wait,
    Ticket(i64),
}

pub const LIVENESS: i64 = 10_000;
const REMEMBER: i64 = 60_000;

#[derive(Debug, Default, Clone)]
pub struct Model {
    pub now_us: i64,
    pub declared: Option<i64>,
    pub runtime: Option<i64>,
    pub sequence: i64,
    pub longest: i64,
    pub permits: BTreeMap<String, Permit>,
    pub queue: BTreeMap<(i64, String), Waiter>,
    /// The clients that a message reaches.
    pub listening: BTreeSet<usize>,
    /// client, id, token, end of lease
    pub messages: Vec<(usize, String, i64, i64)>,
    pub purged: bool,
}

impl Model {
    pub fn now(&self) -> i64 {
        self.now_us / 1000
    }

    pub fn limit(&self) -> i64 {
        self.runtime.or(self.declared).unwrap_or(0)
    }

    /// The weight of all permits that are unexpired at a time.
    pub fn held_at(&self, now: i64) -> i64 {
        self.permits.values().filter(|p| p.ends > now).map(|p| p.weight).sum()
    }

    /// Only when nothing else is left: the loss of `state` alone has a test of its own.
    pub fn forget_state(&mut self) {
        assert!(self.permits.is_empty());
        self.declared = None;
        self.runtime = None;
        self.sequence = 0;
        self.longest = 0;
    }

    pub fn acquire(&mut self, client: usize, limit: i64, requests: &[Request]) -> Option<Vec<i64>> {
        let in_force = self.runtime.or(self.declared).unwrap_or(limit);
        let too_heavy = |r: &Request| r.weight > in_force && !self.holds(&r.id);
        if self.runtime.is_none() && requests.iter().any(too_heavy) {
            return None;
        }
        self.begin();
        if self.runtime.or(self.declared).is_none() {
            self.declared = Some(limit);
        }
        for request in requests {
            if !self.holds(&request.id) {
                self.permits.remove(&request.id);
            }
            if let Some(key) = self.queued(&request.id) {
                self.queue.insert(key, self.waiter(client, request));
            }
        }
        let asking: BTreeSet<&str> = requests.iter().map(|r| r.id.as_str()).collect();
        let mut granted = self.hand_off(&asking);
        for request in requests {
            if let Some(grant) = self.decide(client, request, &granted) {
                granted.insert(request.id.clone(), grant);
            }
        }
        granted.extend(self.hand_off(&asking));
        let mut reply = vec![self.now(), -1];
        for request in requests {
            let position = self.queue.keys().position(|(_, id)| *id == request.id);
            if let Some((token, ends)) = granted.get(&request.id) {
                reply.extend([1, *token, *ends]);
            } else if let Some(position) = position {
                let (ticket, _) = self.queue.keys().nth(position).unwrap();
                reply.extend([2, *ticket, position as i64 + 1]);
                reply[1] = self.next_end();
            } else {
                reply.extend([0, 0, 0]);
            }
        }
        Some(reply)
    }

    fn decide(
        &mut self,
        client: usize,
        request: &Request,
        granted: &BTreeMap<String, (i64, i64)>,
    ) -> Option<(i64, i64)> {
        if granted.contains_key(&request.id) || self.queued(&request.id).is_some() {
            return None;
        }
        if self.holds(&request.id) {
            let token = self.next_sequence();
            return Some((token, self.renew(&request.id, request.lease)));
        }
        if self.queue.is_empty() && self.make_room(request.weight) {
            return Some(self.grant(&request.id, request.weight, request.lease));
        }
        let current = self.sequence.max(self.now_us - 1);
        let ticket = match request.place {
            Place::Try => return None,
            Place::Ticket(ticket) if ticket <= current => ticket,
            Place::Wait | Place::Ticket(_) => self.next_sequence(),
        };
        self.queue.insert((ticket, request.id.clone()), self.waiter(client, request));
        None
    }

    pub fn release(&mut self, consume: bool, ids: &[String]) -> Vec<i64> {
        self.begin();
        let mut reply = vec![self.now(), -1];
        for id in ids {
            let held = self.holds(id);
            let weight = self.permits.remove(id).map_or(0, |permit| permit.weight);
            if let Some(key) = self.queued(id) {
                self.queue.remove(&key);
                reply.push(2);
            } else {
                reply.push(held.into());
            }
            // Where no limit is known, none is set.
            if held && consume && self.runtime.or(self.declared).is_some() {
                self.runtime = Some((self.limit() - weight).max(0));
            }
        }
        self.hand_off(&BTreeSet::new());
        reply
    }

    pub fn refresh(&mut self, requests: &[(String, i64)]) -> Vec<i64> {
        self.begin();
        let mut reply = vec![self.now(), -1];
        for (id, lease) in requests {
            reply.push(if self.holds(id) { self.renew(id, *lease) } else { 0 });
        }
        self.hand_off(&BTreeSet::new());
        reply
    }

    pub fn wake(&mut self) -> Vec<i64> {
        self.begin();
        self.hand_off(&BTreeSet::new());
        let wake_in = if self.queue.is_empty() { -1 } else { self.next_end() };
        vec![self.now(), wake_in, self.queue.len() as i64]
    }

    pub fn limit_action(&mut self, action: &str, number: i64, id: &str) -> Vec<i64> {
        self.begin();
        let before = (self.runtime.or(self.declared), self.declared);
        match action {
            "declare" => self.declared = Some(number),
            "set" => self.runtime = Some(number),
            "initial" => self.runtime = self.runtime.or(Some(number)),
            "add" => self.add(number, id),
            _ => self.runtime = None,
        }
        if self.sequence == 0 && (self.declared.is_some() || self.runtime.is_some()) {
            self.sequence = self.now_us - 1;
        }
        self.hand_off(&BTreeSet::new());
        let none = |limit: Option<i64>| limit.unwrap_or(-1);
        let limit = self.runtime.or(self.declared);
        vec![self.now(), -1, none(limit), none(before.0), none(self.declared), none(before.1)]
    }

    fn add(&mut self, number: i64, id: &str) {
        let mark = format!("+{id}");
        if !self.holds(&mark) {
            self.permits.retain(|_, permit| permit.ends > self.now_us / 1000);
            self.permits.insert(mark, Permit { ends: self.now() + REMEMBER, weight: 0 });
            self.longest = self.longest.max(REMEMBER);
            self.runtime = Some(self.limit() + number);
        }
    }

    /// A script begins: time stands still until it ends.
    fn begin(&mut self) {
        self.purged = false;
    }

    fn holds(&self, id: &str) -> bool {
        self.permits.get(id).is_some_and(|permit| permit.ends > self.now())
    }

    fn queued(&self, id: &str) -> Option<(i64, String)> {
        self.queue.keys().find(|(_, queued)| queued == id).cloned()
    }

    fn waiter(&self, client: usize, request: &Request) -> Waiter {
        let heard_until = self.now() + LIVENESS;
        Waiter { weight: request.weight, lease: request.lease, heard_until, client }
    }

    fn next_sequence(&mut self) -> i64 {
        self.sequence = self.sequence.max(self.now_us - 1) + 1;
        self.sequence
    }

    fn next_end(&self) -> i64 {
        self.permits
            .values()
            .map(|permit| permit.ends - self.now())
            .min()
            .map_or(-1, |ms| ms.max(1))
    }

    /// Ended leases count until room is short; then leases that end too late are cut as well.
    fn make_room(&mut self, weight: i64) -> bool {
        let fits = |model: &Self| {
            model.permits.values().map(|p| p.weight).sum::<i64>() + weight <= model.limit()
        };
        if !fits(self) && !self.purged {
            self.purged = true;
            let now = self.now();
            self.permits.retain(|_, permit| permit.ends > now);
            for permit in self.permits.values_mut() {
                permit.ends = permit.ends.min(now + self.longest);
            }
        }
        fits(self)
    }

    fn grant(&mut self, id: &str, weight: i64, lease: i64) -> (i64, i64) {
        self.longest = if self.permits.is_empty() { lease } else { self.longest.max(lease) };
        let ends = self.now() + lease;
        self.permits.insert(id.to_owned(), Permit { ends, weight });
        (self.next_sequence(), ends)
    }

    fn renew(&mut self, id: &str, lease: i64) -> i64 {
        self.longest = self.longest.max(lease);
        let ends = self.now() + lease;
        self.permits.get_mut(id).unwrap().ends = ends;
        ends
    }

    fn hand_off(&mut self, asking: &BTreeSet<&str>) -> BTreeMap<String, (i64, i64)> {
        let mut granted = BTreeMap::new();
        while !self.queue.is_empty() && self.make_room(1) {
            let ((ticket, id), waiter) = self.queue.first_key_value().unwrap();
            let (key, waiter) = ((*ticket, id.clone()), waiter.clone());
            let asks = asking.contains(key.1.as_str());
            let listens = self.listening.contains(&waiter.client);
            if asks || (waiter.heard_until >= self.now() && listens) {
                let too_heavy = self.runtime.is_none() && waiter.weight > self.limit();
                let mut told = (0, 0);
                if !too_heavy {
                    if !self.make_room(waiter.weight) {
                        break;
                    }
                    told = self.grant(&key.1, waiter.weight, waiter.lease);
                    granted.insert(key.1.clone(), told);
                }
                if !asks {
                    self.messages.push((waiter.client, key.1.clone(), told.0, told.1));
                }
            }
            self.queue.remove(&key);
        }
        granted
    }
}
