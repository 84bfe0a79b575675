//! Waits until the effects of a burst have settled, and compares the results.

use std::time::{Duration, Instant};

use redis_semaphore::{Error, Inspection, Permit};

use test_support::contents::ensure;

use super::clients::{Clients, client_name, counted, poll_once};
use super::reference::{Outcome, Request};

/// A case that passes never waits until this deadline. A case that fails must not take long to
/// shrink.
pub const DEADLINE: Duration = Duration::from_secs(10);

impl Clients {
    /// Waits and compares. If `is_known`, the reference has the expected results; otherwise it
    /// adopts the results.
    pub async fn settle(&mut self, is_known: bool) -> Result<(), String> {
        let deadline = Instant::now() + DEADLINE;
        let mut granted = Vec::new();
        loop {
            granted.extend(self.take_responses(is_known).await?);
            match self.compare(is_known).await {
                Ok(()) => break,
                Err(problem) => ensure(Instant::now() < deadline, || problem)?,
            }
        }
        if is_known {
            granted = std::mem::take(&mut self.case.model.granted);
        }
        self.check_tokens(&granted, is_known)
    }

    async fn take_responses(&mut self, is_known: bool) -> Result<Vec<usize>, String> {
        let mut granted = Vec::new();
        // A poll may send a request again. The loop polls the requests in the order of arrival, so
        // that they keep this order.
        for (number, mut acquiring) in std::mem::take(&mut self.case.acquiring) {
            match poll_once(&mut acquiring).await {
                std::task::Poll::Ready(response) => {
                    let outcome = self.heed(number, response, is_known)?;
                    granted.extend((outcome == Outcome::Granted).then_some(number));
                }
                std::task::Poll::Pending => {
                    self.case.acquiring.insert(number, acquiring);
                }
            }
        }
        for mut other in std::mem::take(&mut self.case.others) {
            match poll_once(&mut other.future).await {
                std::task::Poll::Ready(response) => ensure(response == other.expected, || {
                    format!("{}: {response:?}, must be {:?}", other.what, other.expected)
                })?,
                std::task::Poll::Pending => self.case.others.push(other),
            }
        }
        Ok(granted)
    }

    fn heed(
        &mut self,
        number: usize,
        response: Result<Option<Permit>, Error>,
        is_known: bool,
    ) -> Result<Outcome, String> {
        let case = &mut self.case;
        let request = case.requests[number];
        let outcome = match &response {
            Ok(Some(_)) => Outcome::Granted,
            Ok(None) => Outcome::Refused,
            Err(Error::TooHeavy { weight, limit, .. }) => {
                let reported = (u64::from(*weight), u64::from(*limit));
                let expected = (request.weight, case.model.declared);
                ensure(reported == expected, || format!("{number} is too heavy: {reported:?}"))?;
                Outcome::TooHeavy
            }
            Err(error) => return Err(format!("{number}: {error}")),
        };
        let expected = if is_known {
            case.model.outcomes.get(&number).copied()
        } else {
            let too_heavy = case.model.is_too_heavy(request.weight);
            let is_right = too_heavy == (outcome == Outcome::TooHeavy);
            is_right.then_some(outcome)
        };
        ensure(expected == Some(outcome), || {
            format!("{request:?}: {outcome:?}, must be {expected:?}")
        })?;
        case.model.outcomes.insert(number, outcome);
        if let Ok(Some(permit)) = response {
            let id = &case.ids[number];
            ensure(*id == counted(permit.id()), || format!("{id} holds as {}", permit.id()))?;
            ensure(u64::from(permit.weight()) == request.weight, || {
                format!("{number} weighs {}", permit.weight())
            })?;
            case.permits.insert(number, permit.into());
            if !is_known {
                case.model.held.push(request);
            }
        }
        Ok(outcome)
    }

    /// Each client reads over its own connection, so that the read follows the client's earlier
    /// calls.
    async fn compare(&mut self, is_known: bool) -> Result<(), String> {
        for semaphore in self.semaphores.clone() {
            let seen = semaphore.inspect().await.map_err(|error| error.to_string())?;
            self.own_calls += 1;
            let queue = if is_known { self.case.model.queue.clone() } else { self.queue(&seen)? };
            let waiting: Vec<_> = self.case.acquiring.keys().copied().collect();
            let mut queued: Vec<_> = queue.iter().map(|waiter| waiter.number).collect();
            queued.sort();
            ensure(waiting == queued, || format!("{waiting:?} wait, must be {queued:?}"))?;
            let left: Vec<_> = self.case.others.iter().map(|other| &other.what).collect();
            ensure(left.is_empty(), || format!("no reply to {left:?}"))?;
            self.compare_limit_and_holders(&seen)?;
            self.compare_queue(&seen, &queue)?;
            self.case.model.queue = queue;
        }
        Ok(())
    }

    fn compare_limit_and_holders(&self, seen: &Inspection) -> Result<(), String> {
        let model = &self.case.model;
        ensure(u64::from(seen.limit) == model.limit(), || {
            format!("the limit is {}, must be {}", seen.limit, model.limit())
        })?;
        let mut holders: Vec<_> =
            seen.holders.iter().map(|h| (counted(&h.id), u64::from(h.weight))).collect();
        let held = model.held.iter();
        let mut held: Vec<_> =
            held.map(|held| (self.case.ids[held.number].clone(), held.weight)).collect();
        holders.sort();
        held.sort();
        ensure(holders == held, || format!("{holders:?} hold, must be {held:?}"))?;
        let weight = model.held_weight();
        ensure(seen.held == weight, || format!("{} held, must be {weight}", seen.held))
    }

    fn compare_queue(&self, seen: &Inspection, queue: &[Request]) -> Result<(), String> {
        let weights = queue.iter().map(|waiter| (client_name(waiter.client), waiter.weight));
        let seen_weights =
            seen.waiters.iter().map(|w| (w.client_name().to_owned(), w.weight.into()));
        ensure(seen_weights.eq(weights), || {
            format!("the queue is {:?}, must be {queue:?}", seen.waiters)
        })?;
        for (waiter, seen) in queue.iter().zip(&seen.waiters) {
            let id = &self.case.ids[waiter.number];
            ensure(*id == counted(&seen.id), || format!("{} is in the place of {id}", seen.id))?;
        }
        Ok(())
    }

    /// Returns the server's queue, in which the requests of each client are in the order of
    /// arrival.
    fn queue(&self, seen: &Inspection) -> Result<Vec<Request>, String> {
        let of = |client: usize| {
            let waiting = self.case.acquiring.keys().map(|number| self.case.requests[*number]);
            waiting.filter(move |request| request.client == client)
        };
        let mut waiting = [of(0), of(1)];
        let next = |name_seen: &str| {
            let client = (0..2).find(|client| client_name(*client) == name_seen)?;
            waiting[client].next()
        };
        let client_names = seen.waiters.iter().map(|waiter| waiter.client_name());
        let queue: Option<Vec<_>> = client_names.map(next).collect();
        queue.ok_or_else(|| format!("too many wait: {:?}", seen.waiters))
    }

    /// Checks that the tokens increase in the order of the grants. If that order is unknown, checks
    /// each client's tokens in the order of arrival.
    fn check_tokens(&mut self, granted: &[usize], is_known: bool) -> Result<(), String> {
        let case = &mut self.case;
        let token = |number: &usize| case.permits[number].fencing_token();
        let newest = granted.iter().map(token).max();
        let known = [granted.to_vec()];
        let by_client = [0, 1].map(|client| {
            let is_theirs = |number: &usize| case.requests[*number].client == client;
            let mut theirs: Vec<_> = granted.iter().copied().filter(is_theirs).collect();
            theirs.sort();
            theirs
        });
        for order in if is_known { &known[..] } else { &by_client } {
            let mut last = case.last_token;
            for number in order {
                let token = token(number);
                ensure(token > last, || format!("{number} has token {token} after {last}"))?;
                last = token;
            }
        }
        case.last_token = newest.unwrap_or(case.last_token);
        Ok(())
    }

    /// Checks the rules that apply in any order. `old` is the number of the first request of the
    /// burst.
    pub fn check_order(&mut self, old: usize) -> Result<(), String> {
        let model = &self.case.model;
        let limit = model.limit();
        let weight = model.held_weight();
        let new = model.held.iter().filter(|held| held.number >= old);
        ensure(new.clone().count() == 0 || weight <= limit, || {
            format!("{weight} held, the limit is {limit}")
        })?;
        for held in new {
            let overtaken = |waiter: &&Request| {
                waiter.number < old || (waiter.client == held.client && waiter.number < held.number)
            };
            let waiter = model.queue.iter().find(overtaken);
            ensure(waiter.is_none(), || format!("{held:?} has overtaken {waiter:?}"))?;
        }
        let is_new = |waiter: &Request| waiter.number >= old;
        ensure(model.queue.is_sorted_by_key(is_new), || {
            format!("a new request is in front of an old one: {:?}", model.queue)
        })?;
        let head = model.queue.first();
        let fits = |head: &Request| {
            model.fits(if model.is_too_heavy(head.weight) { 1 } else { head.weight })
        };
        ensure(!head.is_some_and(fits), || format!("{head:?} fits and waits"))
    }
}
