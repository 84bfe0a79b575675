//! The reference for a semaphore on which no lease expires. The reference has a limit, holders and
//! waiters.

use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Request {
    /// The tests number their requests in the order of arrival.
    pub number: usize,
    pub client: usize,
    pub weight: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Outcome {
    Granted,
    Refused,
    TooHeavy,
}

#[derive(Debug, Default)]
pub struct Reference {
    pub declared: u64,
    pub runtime: Option<u64>,
    pub held: Vec<Request>,
    pub queue: Vec<Request>,
    /// The outcomes of all requests that have a result.
    pub outcomes: BTreeMap<usize, Outcome>,
    /// The numbers of the granted requests, in the order of the grants.
    pub granted: Vec<usize>,
}

impl Reference {
    pub fn limit(&self) -> u64 {
        self.runtime.unwrap_or(self.declared)
    }

    pub fn held_weight(&self) -> u64 {
        self.held.iter().map(|held| held.weight).sum()
    }

    pub fn fits(&self, weight: u64) -> bool {
        self.held_weight() + weight <= self.limit()
    }

    /// Returns whether a request is too heavy. If a runtime limit is set, no request is too heavy,
    /// because that limit may be raised at any time.
    pub fn is_too_heavy(&self, weight: u64) -> bool {
        self.runtime.is_none() && weight > self.declared
    }

    pub fn holds(&self, number: usize) -> bool {
        self.held.iter().any(|held| held.number == number)
    }

    pub fn ask(&mut self, request: Request, waits: bool) {
        if self.is_too_heavy(request.weight) {
            self.outcomes.insert(request.number, Outcome::TooHeavy);
        } else if self.queue.is_empty() && self.fits(request.weight) {
            self.grant(request);
        } else if waits {
            self.queue.push(request);
        } else {
            self.outcomes.insert(request.number, Outcome::Refused);
        }
    }

    fn grant(&mut self, request: Request) {
        self.outcomes.insert(request.number, Outcome::Granted);
        self.granted.push(request.number);
        self.held.push(request);
    }

    /// Releases the permit, and returns whether it was held.
    pub fn give_back(&mut self, number: usize) -> bool {
        let held = self.holds(number);
        self.held.retain(|held| held.number != number);
        self.serve();
        held
    }

    /// Releases the permit like [`give_back`](Self::give_back), and subtracts its weight from the
    /// limit.
    pub fn consume(&mut self, number: usize) -> bool {
        let weight = self.held.iter().find(|held| held.number == number).map(|held| held.weight);
        if let Some(weight) = weight {
            self.runtime = Some(self.limit().saturating_sub(weight));
        }
        self.give_back(number)
    }

    /// Removes all these requests before any request is granted.
    pub fn leave(&mut self, numbers: &[usize]) {
        self.queue.retain(|waiter| !numbers.contains(&waiter.number));
        self.serve();
    }

    pub fn set_limit(&mut self, runtime: Option<u64>) {
        self.runtime = runtime;
        self.serve();
    }

    /// Grants in strict order: no request is granted before the request in front of it.
    fn serve(&mut self) {
        while let Some(first) = self.queue.first().copied().filter(|_| self.fits(1)) {
            if self.is_too_heavy(first.weight) {
                self.refuse_too_heavy(first.client);
            } else if self.fits(first.weight) {
                self.queue.remove(0);
                self.grant(first);
            } else {
                break;
            }
        }
    }

    /// Rejects the client's requests that are too heavy. A client that is notified of one such
    /// request sends all its queued requests again.
    fn refuse_too_heavy(&mut self, client: usize) {
        let queue = std::mem::take(&mut self.queue);
        for waiter in queue {
            if waiter.client == client && self.is_too_heavy(waiter.weight) {
                self.outcomes.insert(waiter.number, Outcome::TooHeavy);
            } else {
                self.queue.push(waiter);
            }
        }
    }

    pub fn has_too_heavy(&self) -> bool {
        self.queue.iter().any(|waiter| self.is_too_heavy(waiter.weight))
    }
}
