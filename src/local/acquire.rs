//! The counterpart of `lua/acquire.lua`: each request is granted, queued or not granted.

use std::collections::{BTreeMap, BTreeSet};

use sha1_smol::Sha1;

use super::{Refusal, Semaphore, id};

/// About this many of the waiting clients should call `wake` when the next lease expires.
const CALLERS: i64 = 16;

pub(super) struct Request<'a> {
    pub(super) id: &'a str,
    pub(super) place: Place,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Place {
    Try,
    Wait,
    /// Wait, with a head start in ms.
    Ahead(i64),
    /// Wait, with a ticket from an earlier call.
    Ticket(i64),
}

impl Semaphore {
    pub(super) fn acquire(
        &mut self,
        (kind, limit): (&str, i64),
        heartbeat_timeout: i64,
        requests: &[Request<'_>],
    ) -> Result<Vec<i64>, Refusal> {
        let held: Vec<bool> = requests.iter().map(|request| self.holds(request.id)).collect();
        let new = || requests.iter().zip(&held).filter(|(_, held)| !**held).map(|(new, _)| new);
        let (declared_before, configured) = (self.declared, self.configured(kind, limit));
        if let (declared, None) = configured {
            check_weights(requests, &held, declared.unwrap_or(0))?;
        }
        (self.declared, self.runtime) = configured;
        for request in new() {
            self.permits.remove(request.id);
        }
        self.purge();
        if requests.iter().any(|request| !id::group(request.id).is_empty()) {
            self.begin_groups();
        }
        let mut crowd = 0;
        let needed: i64 = new().map(|new| id::weight(new.id)).sum();
        let may_exceed_cap = new().any(|new| self.exceeds_cap(new.id, needed));
        if !self.queue.is_empty() || self.held() + needed > self.limit() || may_exceed_cap {
            let is_set_back = self.is_set_back();
            let asked = requests.iter().map(|request| request.id).collect::<BTreeSet<_>>();
            if requests.iter().any(|request| request.place != Place::Try) {
                self.decide_early(requests, &held);
                new().for_each(|request| self.take_place(request, is_set_back));
                self.record_heartbeat(id::client(requests[0].id), heartbeat_timeout);
                crowd = self.crowd(heartbeat_timeout);
            }
            let is_queued = |request: &Request<'_>| self.queue.ticket(request.id).is_some();
            let sweeps = crowd > CALLERS && requests.iter().any(is_queued);
            self.serve(&asked, sweeps);
        }
        let mut free = self.limit() - self.held();
        let decided = requests.iter().zip(held);
        let responses = decided.map(|(request, held)| self.decide(request, held, &mut free));
        let mut responses: Vec<_> = responses.collect();
        let waits = self.report_ranks(requests, &mut responses);
        let tokens = self.finish();
        let is_called =
            waits && self.is_called(id::client(requests[0].id), heartbeat_timeout, crowd);
        let wake_in = if is_called { self.wake_in() } else { -1 };
        let mut reply = vec![self.now(), wake_in, declared_before.unwrap_or(-1)];
        for (Request { id, .. }, response) in requests.iter().zip(responses) {
            let ends = self.now() + id::lease(id);
            reply.extend(response.unwrap_or_else(|| [1, tokens[*id], ends]));
        }
        Ok(reply)
    }

    /// Grants permits to the requests without a wait at the beginning of a call. The program made
    /// them before the other requests, which now enter the queue.
    fn decide_early(&mut self, requests: &[Request<'_>], held: &[bool]) {
        if self.turns.virtual_time.is_none() || !self.queue.is_empty() {
            return;
        }
        let early =
            requests.iter().zip(held).take_while(|(request, _)| request.place == Place::Try);
        for (Request { id, .. }, _) in early.filter(|(_, held)| !**held) {
            if self.is_next(id) && self.held() + id::weight(id) <= self.limit() {
                self.grant(id, id::lease(id));
            }
        }
    }

    /// Whether a waiting client should call `wake` when the next lease expires.
    fn is_called(&self, client: &str, heartbeat_timeout: i64, crowd: i64) -> bool {
        let draw =
            Sha1::from(format!("{client}{}", self.now() / heartbeat_timeout)).digest().bytes();
        let draw = i64::from(u32::from_be_bytes([draw[0], draw[1], draw[2], draw[3]]));
        let is_at_head = || self.head().map(id::client) == Some(client);
        crowd <= CALLERS || draw % crowd < CALLERS || is_at_head()
    }

    /// Queues a request that has a head start, a ticket or a group. Called before any grant, because
    /// the request may precede other requests.
    fn take_place(&mut self, request: &Request<'_>, is_set_back: bool) {
        if self.queue.ticket(request.id).is_some() {
            return self.take_turn(request.id);
        }
        let ticket = match request.place {
            Place::Ahead(ms) => {
                let number = self.next_number();
                if is_set_back { number } else { (number - ms * 1000).max(1) }
            }
            // A ticket is accepted if it can have been issued.
            Place::Ticket(ticket) if ticket <= self.last.max(self.now_us) => ticket,
            Place::Ticket(_) => self.next_number(),
            Place::Wait if self.turns.virtual_time.is_some() => self.next_number(),
            Place::Try | Place::Wait => return,
        };
        self.last = self.last.max(ticket);
        self.queue.insert(ticket, request.id);
        self.take_turn(request.id);
    }

    /// Returns `None` if the request is granted. The position of a waiting request is left at 0.
    fn decide(
        &mut self,
        request: &Request<'_>,
        was_held: bool,
        free: &mut i64,
    ) -> Option<[i64; 3]> {
        let id = request.id;
        if self.holds(id) && !was_held {
            return None; // granted from the queue
        }
        let weight = if was_held { 0 } else { id::weight(id) };
        let is_queued = self.queue.ticket(id).is_some();
        if was_held || !is_queued && self.is_next(id) && weight <= *free {
            *free -= weight;
            self.grant(id, id::lease(id));
            return None;
        }
        let ticket = match self.queue.ticket(id) {
            Some(ticket) => ticket,
            None if request.place == Place::Try => return Some([0, 0, 0]),
            None => self.next_number(),
        };
        if !is_queued {
            self.queue.insert(ticket, id);
        }
        Some([2, ticket, 0])
    }

    /// Fills in the positions in one pass through the requests of each group. Returns whether any
    /// request waits.
    fn report_ranks(&self, requests: &[Request<'_>], responses: &mut [Option<[i64; 3]>]) -> bool {
        let mut waiting: Vec<_> = requests
            .iter()
            .zip(responses)
            .filter_map(|(request, response)| match response {
                Some([2, ticket, rank]) => Some((*ticket, request.id, rank)),
                _ => None,
            })
            .collect();
        waiting.sort();
        let mut lines = BTreeMap::new();
        for (_, id, reported) in &mut waiting {
            let group = id::group(id);
            let line = lines.entry(group).or_insert_with(|| self.queue.line(group).zip(1..));
            let it = line.find(|((_, queued), _)| queued == id);
            **reported = it.map_or(0, |(_, rank)| rank);
        }
        !waiting.is_empty()
    }
}

/// Requests that already hold a permit are not checked: their weight may exceed a newer limit.
fn check_weights(requests: &[Request<'_>], held: &[bool], limit: i64) -> Result<(), Refusal> {
    for (number, (Request { id, .. }, is_held)) in requests.iter().zip(held).enumerate() {
        let weight = id::weight(id);
        if weight > limit && !is_held {
            let index = 2 * number + 4;
            let detail = format!("ARGV[{index}] (id) weighs {weight}, the limit is {limit}");
            return Err(Refusal { code: "SEM_TOO_HEAVY", detail });
        }
    }
    Ok(())
}
