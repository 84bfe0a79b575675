//! A small model of the protocol: what the scripts must answer, without keys, chunks or counters.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::scripts::{lease, part, weight};

#[derive(Debug, Clone)]
pub struct Request {
    pub word: String,
    pub place: Place,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Place {
    Try,
    Wait,
    Ahead(i64),
    Ticket(i64),
}

/// What a refresh asks for a permit.
#[derive(Debug, Clone)]
pub enum Next {
    Lease(i64),
    Word(String),
}

const MAX_TIME: i64 = 604_800_000;

/// In the place of `wake_in`: somebody waits, and no lease ends.
pub const NOTHING_ENDS: i64 = i64::MAX;

#[derive(Debug, Default, Clone)]
pub struct Model {
    pub now_us: i64,
    pub declared: Option<i64>,
    pub runtime: Option<i64>,
    pub last: i64,
    pub longest: i64,
    pub has_state: bool,
    /// The end of each lease.
    pub permits: BTreeMap<String, i64>,
    pub queue: BTreeSet<(i64, String)>,
    /// Until when each counts as heard of; and marks, until when they are known.
    pub clients: BTreeMap<String, i64>,
    /// The longest that any of them asked for.
    pub liveness: i64,
    /// The clients that a message reaches.
    pub listening: BTreeSet<String>,
    /// client, word, token, end of lease
    pub messages: Vec<(String, String, i64, i64)>,
    /// Words whose lease begins in this call, and their leases.
    pub granted: Vec<(String, i64)>,
    /// Those of whom a client hears by a message.
    pub told: Vec<String>,
}

impl Model {
    pub fn now(&self) -> i64 {
        self.now_us / 1000
    }

    pub fn limit(&self) -> i64 {
        self.runtime.or(self.declared).unwrap_or(0)
    }

    fn is_limit_known(&self) -> bool {
        self.runtime.or(self.declared).is_some()
    }

    /// The weight of all permits that are unexpired at a time.
    pub fn held_at(&self, now: i64) -> i64 {
        self.permits.iter().filter(|(_, ends)| **ends > now).map(|(word, _)| weight(word)).sum()
    }

    pub(super) fn held(&self) -> i64 {
        self.permits.keys().map(|word| weight(word)).sum()
    }

    pub fn lose(&mut self, key: usize) {
        match key {
            0 => self.permits.clear(),
            1 => self.queue.clear(),
            2 => {
                self.clients.clear();
                self.liveness = 0;
            }
            _ => {
                (self.declared, self.runtime) = (None, None);
                (self.last, self.longest, self.has_state) = (0, 0, false);
            }
        }
    }

    /// A script begins. Without `state`, whoever is there may have any lease, and any ticket.
    fn open(&mut self) {
        self.granted.clear();
        self.told.clear();
        if !self.has_state {
            self.has_state =
                self.liveness > 0 || !self.permits.is_empty() || !self.queue.is_empty();
            self.longest = if self.has_state { MAX_TIME } else { 0 };
            self.last = self.last_ticket();
        }
    }

    pub fn last_ticket(&self) -> i64 {
        self.queue.last().map_or(0, |(ticket, _)| *ticket)
    }

    pub fn acquire(
        &mut self,
        kind: &str,
        limit: i64,
        liveness: i64,
        requests: &[Request],
    ) -> Option<Vec<i64>> {
        let before = self.clone();
        self.open();
        let declared_before = self.declared.unwrap_or(-1);
        self.configure(kind, limit);
        let held: Vec<bool> = requests.iter().map(|request| self.holds(&request.word)).collect();
        let new = || requests.iter().zip(&held).filter(|(_, held)| !**held).map(|(new, _)| new);
        if self.runtime.is_none() && new().any(|new| weight(&new.word) > self.limit()) {
            *self = before;
            return None;
        }
        for request in new() {
            self.permits.remove(&request.word);
        }
        self.purge();
        let asked: BTreeSet<&str> = requests.iter().map(|r| r.word.as_str()).collect();
        let needed: i64 = new().map(|new| weight(&new.word)).sum();
        if !self.queue.is_empty() || self.held() + needed > self.limit() {
            for request in new() {
                self.take_place(request);
            }
            if requests.iter().any(|request| request.place != Place::Try) {
                self.hear_of(part(&requests[0].word, 1).to_owned(), liveness);
            }
            self.serve(&asked);
        }
        let answers: Vec<_> =
            requests.iter().zip(&held).map(|(r, held)| self.decide(r, *held)).collect();
        let tokens = self.write();
        let mut reply = vec![self.now(), -1, declared_before];
        for (request, answer) in requests.iter().zip(answers) {
            let ends = self.now() + lease(&request.word);
            reply.extend(answer.unwrap_or_else(|| [1, tokens[&request.word], ends]));
            if answer.is_some_and(|answer| answer[0] == 2) {
                reply[1] = self.next_end();
            }
        }
        Some(reply)
    }

    /// Who asks for a place of its own has it before all else is decided.
    fn take_place(&mut self, request: &Request) {
        if self.queued(&request.word).is_some() {
            return;
        }
        let ticket = match request.place {
            Place::Ahead(ms) => {
                let number = self.next_number();
                let is_far_behind = number > self.now_us + 1_000_000;
                if is_far_behind { number } else { number - ms * 1000 }
            }
            Place::Ticket(ticket) if ticket <= self.last.max(self.now_us) => ticket,
            Place::Ticket(_) => self.next_number(),
            Place::Try | Place::Wait => return,
        };
        self.last = self.last.max(ticket);
        self.queue.insert((ticket, request.word.clone()));
    }

    /// None where it is granted.
    fn decide(&mut self, request: &Request, held: bool) -> Option<[i64; 3]> {
        let word = &request.word;
        let fits = self.queue.is_empty() && self.held() + weight(word) <= self.limit();
        if self.is_granted(word) {
            return None;
        }
        let ticket = self.queued(word).map(|(ticket, _)| ticket);
        if held || fits {
            self.grant(word, lease(word));
            return None;
        } else if ticket.is_none() && request.place == Place::Try {
            return Some([0, 0, 0]);
        }
        let ticket = ticket.unwrap_or_else(|| self.next_number());
        let entry = (ticket, word.clone());
        self.queue.insert(entry.clone());
        let rank = self.queue.iter().position(|other| *other == entry).unwrap() as i64 + 1;
        Some([2, ticket, rank])
    }

    /// Two that have died go with each that is new.
    fn hear_of(&mut self, client: String, liveness: i64) {
        let is_new = self.liveness == 0 || !self.clients.contains_key(&client);
        let (now, until) = (self.now(), self.now() + liveness);
        let heard = self.clients.entry(client).or_insert(until);
        *heard = until.max(*heard);
        self.liveness = self.liveness.max(liveness);
        // It shows later whether the clock has stepped back since.
        self.last = self.last.max(self.now_us - 1);
        self.has_state = true;
        if is_new {
            let mut dead: Vec<_> = self.clients.iter().filter(|(_, heard)| **heard < now).collect();
            dead.sort_by_key(|(client, heard)| (**heard, client.to_string()));
            let dead: Vec<_> = dead.into_iter().take(2).map(|(client, _)| client.clone()).collect();
            self.clients.retain(|client, _| !dead.contains(client));
        }
    }

    pub fn release(&mut self, consume: bool, words: &[String]) -> Vec<i64> {
        self.open();
        self.purge();
        let mut reply = vec![self.now(), -1];
        let mut consumed = 0;
        for word in words {
            let held = self.holds(word);
            self.permits.remove(word);
            if let Some(entry) = self.queued(word) {
                self.queue.remove(&entry);
                reply.push(2);
            } else {
                reply.push(held.into());
            }
            consumed += if held && consume { weight(word) } else { 0 };
        }
        // Where no limit is known, none is set.
        if consumed > 0 && self.is_limit_known() {
            self.set_runtime(Some((self.limit() - consumed).max(0)));
        }
        self.hand_off(vec![]);
        reply
    }

    pub fn refresh(&mut self, requests: &[(String, Next)]) -> Vec<i64> {
        self.open();
        let (mut reply, mut kept) = (vec![self.now(), -1], vec![]);
        for (word, next) in requests {
            let (name, lease) = match next {
                Next::Lease(ms) => (word, *ms),
                Next::Word(next) => (next, lease(next)),
            };
            // An exchange may have come before.
            let is_held = self.holds(name) || self.holds(word);
            if !self.holds(name) {
                self.permits.remove(word);
                self.permits.remove(name);
            }
            if is_held {
                kept.push((name.clone(), lease));
            }
            reply.push(if is_held { self.now() + lease } else { 0 });
            // Who holds does not wait, and who is lost does not, either.
            self.queue.retain(|(_, queued)| queued != word && queued != name);
        }
        self.hand_off(kept);
        reply
    }

    pub fn wake(&mut self) -> Vec<i64> {
        self.open();
        self.hand_off(vec![]);
        let wake_in = if self.queue.is_empty() { -1 } else { self.next_end() };
        vec![self.now(), wake_in, self.queue.len() as i64]
    }

    fn configure(&mut self, kind: &str, limit: i64) {
        match kind {
            "declare" => self.set_declared(limit),
            "declared" if !self.is_limit_known() => self.set_declared(limit),
            "initial" if !self.is_limit_known() => self.set_runtime(Some(limit)),
            _ => {}
        }
    }

    pub fn change_limit(
        &mut self,
        kind: &str,
        limit: i64,
        change: &Option<(&str, i64, String)>,
    ) -> Vec<i64> {
        self.open();
        let before = (self.runtime.or(self.declared), self.declared);
        self.configure(kind, limit);
        if let Some((change, n, mark)) = change
            && self.clients.get(mark).is_none_or(|until| *until <= self.now())
        {
            self.hear_of(mark.to_owned(), lease(mark));
            match *change {
                "set" => self.set_runtime(Some(*n)),
                "add" => self.set_runtime(Some(self.limit() + n)),
                _ => self.set_runtime(None),
            }
        }
        self.hand_off(vec![]);
        let none = |limit: Option<i64>| limit.unwrap_or(-1);
        let limit = self.runtime.or(self.declared);
        vec![self.now(), -1, none(limit), none(before.0), none(self.declared), none(before.1)]
    }

    fn set_declared(&mut self, limit: i64) {
        self.declared = Some(limit);
        self.has_state = true;
    }

    fn set_runtime(&mut self, limit: Option<i64>) {
        self.has_state |= limit.is_some() || self.runtime.is_some();
        self.runtime = limit;
    }

    pub fn holds(&self, word: &str) -> bool {
        self.permits.get(word).is_some_and(|ends| *ends > self.now())
    }

    fn queued(&self, word: &str) -> Option<(i64, String)> {
        self.queue.iter().find(|(_, queued)| queued == word).cloned()
    }

    pub(super) fn next_number(&mut self) -> i64 {
        self.last = (self.last + 1).max(self.now_us);
        self.last
    }

    fn next_end(&self) -> i64 {
        let ends = self.permits.values().map(|ends| ends - self.now()).min();
        ends.map_or(NOTHING_ENDS, |ms| ms.max(1))
    }

    /// Ended leases go. If the clock has stepped back, nothing ends later than it can since then.
    pub(super) fn purge(&mut self) {
        let now = self.now();
        if self.last > self.now_us + 1_000_000 {
            for ends in self.permits.values_mut() {
                *ends = (*ends).min(now + self.longest);
            }
            for until in self.clients.values_mut() {
                *until = (*until).min(now + self.liveness);
            }
        }
        self.permits.retain(|_, ends| *ends > now);
    }
}
