//! As `lua/acquire.lua`: each request is granted, queued or refused.

use std::collections::BTreeSet;

use super::scripts::Refusal;
use super::{Semaphore, word};

pub(super) struct Request<'a> {
    pub(super) word: &'a str,
    pub(super) place: Place,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Place {
    Try,
    Wait,
    /// With a head start.
    Ahead(i64),
    /// That it had.
    Ticket(i64),
}

impl Semaphore {
    pub(super) fn acquire(
        &mut self,
        (kind, limit): (&str, i64),
        liveness: i64,
        requests: &[Request<'_>],
    ) -> Result<Vec<i64>, Refusal> {
        let held: Vec<bool> = requests.iter().map(|request| self.holds(request.word)).collect();
        let new = || requests.iter().zip(&held).filter(|(_, held)| !**held).map(|(new, _)| new);
        let (declared_before, configured) = (self.declared, self.configured(kind, limit));
        if let (declared, None) = configured {
            check_weights(requests, &held, declared.unwrap_or(0))?;
        }
        (self.declared, self.runtime) = configured;
        for request in new() {
            self.permits.remove(request.word);
        }
        self.purge();
        let needed: i64 = new().map(|new| word::weight(new.word)).sum();
        if !self.queue.is_empty() || self.held() + needed > self.limit() {
            new().for_each(|request| self.take_place(request));
            if requests.iter().any(|request| request.place != Place::Try) {
                self.hear_of(word::client(requests[0].word), liveness);
            }
            self.serve(&requests.iter().map(|request| request.word).collect::<BTreeSet<_>>());
        }
        let answers = requests.iter().zip(held).map(|(request, held)| self.decide(request, held));
        let answers: Vec<_> = answers.collect();
        let tokens = self.finish();
        let waits = answers.iter().flatten().any(|answer| answer[0] == 2);
        let wake_in = if waits { self.wake_in() } else { -1 };
        let mut reply = vec![self.now(), wake_in, declared_before.unwrap_or(-1)];
        for (Request { word, .. }, answer) in requests.iter().zip(answers) {
            let ends = self.now() + word::lease(word);
            reply.extend(answer.unwrap_or_else(|| [1, tokens[*word], ends]));
        }
        Ok(reply)
    }

    /// Who asks for a place of its own, which may be before others, has it before all else is
    /// decided.
    fn take_place(&mut self, request: &Request<'_>) {
        if self.queued(request.word).is_some() {
            return;
        }
        let ticket = match request.place {
            Place::Ahead(ms) => {
                let number = self.next_number();
                if self.was_set_back(number) { number } else { number - ms * 1000 }
            }
            // It is believed when it can have been given.
            Place::Ticket(ticket) if ticket <= self.last.max(self.now_us) => ticket,
            Place::Ticket(_) => self.next_number(),
            Place::Try | Place::Wait => return,
        };
        self.last = self.last.max(ticket);
        self.queue.insert((ticket, request.word.to_owned()));
    }

    /// None where it is granted.
    fn decide(&mut self, request: &Request<'_>, is_held: bool) -> Option<[i64; 3]> {
        let word = request.word;
        if self.is_granted(word) {
            return None;
        }
        let fits = self.queue.is_empty() && self.held() + word::weight(word) <= self.limit();
        if is_held || fits {
            self.grant(word, word::lease(word));
            return None;
        }
        let entry = match self.queued(word) {
            Some(entry) => entry,
            None if request.place == Place::Try => return Some([0, 0, 0]),
            None => (self.next_number(), word.to_owned()),
        };
        let (ticket, rank) = (entry.0, self.queue.range(..&entry).count() as i64 + 1);
        self.queue.insert(entry);
        Some([2, ticket, rank])
    }
}

/// What is held already may weigh more than it could by now.
fn check_weights(requests: &[Request<'_>], held: &[bool], limit: i64) -> Result<(), Refusal> {
    for (number, (Request { word, .. }, is_held)) in requests.iter().zip(held).enumerate() {
        let weight = word::weight(word);
        if weight > limit && !is_held {
            let index = 2 * number + 4;
            let detail = format!("ARGV[{index}] (word) weighs {weight}, the limit is {limit}");
            return Err(Refusal { code: "SEM_TOO_HEAVY", detail });
        }
    }
    Ok(())
}
