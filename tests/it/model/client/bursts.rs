//! The operations of a burst, and the number of calls that it may take.

use std::collections::BTreeSet;
use std::sync::Arc;

use redis_semaphore::Error;

use super::clients::{Acquiring, Clients, Future, Other, Response, client_name, poll_once};
use super::reference::Request;
use super::{Ask, Change, End};

impl Clients {
    fn new_request(&mut self, client: usize, weight: u32) -> Request {
        let number = self.case.requests.len();
        let request = Request { number, client, weight: weight.into() };
        self.case.requests.push(request);
        let id = format!("{}:{:016x}", client_name(client), self.next_numbers[client]);
        self.next_numbers[client] = self.next_numbers[client].wrapping_add(1);
        self.case.ids.push(id);
        request
    }

    /// Polls the request for the first time. This poll adds the request to a batch.
    async fn start_acquire(&mut self, request: Request, ask: &Ask) {
        let semaphore = self.semaphores[request.client].clone();
        let Ask { weight, waits, is_dropped } = *ask;
        let mut acquiring: Acquiring = Box::pin(async move {
            match waits {
                true => semaphore.acquire_many(weight).await.map(Some),
                false => semaphore.try_acquire_many(weight).await,
            }
        });
        assert!(poll_once(&mut acquiring).await.is_pending(), "no reply arrives immediately");
        if !is_dropped {
            self.case.acquiring.insert(request.number, acquiring);
        }
    }

    async fn start_other(
        &mut self,
        what: String,
        expected: Response,
        future: impl std::future::Future<Output = Response> + 'static,
    ) {
        let mut future: Future<Response> = Box::pin(future);
        assert!(poll_once(&mut future).await.is_pending(), "no reply arrives immediately");
        self.case.others.push(Other { what, expected, future });
    }

    pub async fn acquire(&mut self, client: usize, lead: usize, asks: &[Ask]) -> Batches {
        let is_dropped = asks.iter().any(|ask| ask.is_dropped);
        for (index, ask) in asks.iter().enumerate() {
            give_way_after(lead, index).await;
            let request = self.new_request(client, ask.weight);
            self.start_acquire(request, ask).await;
            if !ask.is_dropped {
                self.case.model.ask(request, ask.waits);
            }
        }
        // A request that may be too heavy is sent in its own call.
        let may_be_too_heavy = |ask: &Ask| u64::from(ask.weight) > self.case.model.declared;
        let turns = asks.windows(2);
        let turns = turns.filter(|pair| may_be_too_heavy(&pair[0]) != may_be_too_heavy(&pair[1]));
        let batches = batches(asks.len(), lead) + turns.count() as u64;
        // A request that is dropped while its call is under way is released when that call ends.
        // The test allows two releasing calls for each call.
        let strays = if is_dropped { 2 * batches } else { 0 };
        Batches { now: batches, strays }
    }

    fn permits_of(&self, client: usize) -> Vec<usize> {
        let is_theirs = |number: &usize| self.case.requests[*number].client == client;
        self.case.permits.keys().copied().filter(is_theirs).collect()
    }

    /// Returns the picked permits of a client, each once.
    fn pick(&self, client: usize, picks: impl Iterator<Item = usize>) -> Vec<usize> {
        let mut permits = self.permits_of(client);
        picks.map_while(|pick| take(&mut permits, pick)).collect()
    }

    pub async fn end(&mut self, client: usize, lead: usize, ends: &[(usize, End)]) -> Batches {
        let numbers = self.pick(client, ends.iter().map(|(pick, _)| *pick));
        // If a client is notified that a request is too heavy, the client sends its requests again.
        // A forget sets a runtime limit, and the test does not know which limit applies to those
        // requests.
        let forgets = !self.case.model.has_too_heavy();
        let (mut now, mut last) = (0, None);
        for (index, (number, (_, end))) in numbers.iter().zip(ends).enumerate() {
            let end = if *end == End::Forget && !forgets { End::Release } else { *end };
            if end != End::Drop {
                give_way_after(lead, index).await;
            }
            let held = match end {
                End::Forget => self.case.model.consume(*number),
                End::Release | End::Drop => self.case.model.give_back(*number),
            };
            self.start_end(*number, end, held).await;
            // Only ends of the same kind share a call.
            now += u64::from(last.replace(end) != Some(end));
        }
        // A permit that was lost before may be released after everything else has settled.
        let strays = (last == Some(End::Drop)).into();
        Batches { now: now + batches(numbers.len(), lead) - 1, strays }
    }

    async fn start_end(&mut self, number: usize, end: End, held: bool) {
        let permit = Arc::into_inner(self.case.permits.remove(&number).unwrap()).unwrap();
        let what = format!("{end:?} of {number}");
        let expected = Response::Held(held);
        match end {
            End::Release => {
                self.start_other(what, expected, async { was_held(permit.release().await) }).await;
            }
            End::Forget => {
                self.start_other(what, expected, async { was_held(permit.forget().await) }).await;
            }
            End::Drop => drop(permit),
        }
    }

    pub async fn refresh(&mut self, client: usize, lead: usize, picks: &[usize]) -> Batches {
        let mut permits = self.permits_of(client);
        // The client does not refresh a permit that it knows to be lost.
        permits.retain(|number| !self.case.permits[number].is_lost());
        let (mut now, mut asked) = (1, BTreeSet::new());
        if permits.is_empty() {
            return Batches { now: 0, strays: 0 };
        }
        for (index, pick) in picks.iter().enumerate() {
            give_way_after(lead, index).await;
            let number = permits[pick % permits.len()];
            let permit = self.case.permits[&number].clone();
            let expected = Response::Held(self.case.model.holds(number));
            let refresh = async move { was_held(permit.refresh().await) };
            self.start_other(format!("refresh of {number}"), expected, refresh).await;
            // If a refresh of a permit is under way, the next refresh is sent after the reply.
            now += u64::from(!asked.insert(number));
        }
        Batches { now: now + batches(picks.len(), lead) - 1, strays: 0 }
    }

    pub fn cancel(&mut self, client: usize, picks: &[usize]) -> Batches {
        let model = &mut self.case.model;
        let theirs = model.queue.iter().filter(|waiter| waiter.client == client);
        let mut waiters: Vec<_> = theirs.map(|waiter| waiter.number).collect();
        let numbers: Vec<_> = picks.iter().map_while(|pick| take(&mut waiters, *pick)).collect();
        for number in &numbers {
            self.case.acquiring.remove(number);
        }
        model.leave(&numbers);
        // One more call is allowed, because a wait whose call is still under way is released when
        // that call ends.
        Batches { now: (!numbers.is_empty()).into(), strays: 1 }
    }

    /// Gives up permits and waits, and acquires immediately afterwards. The permits given up are
    /// free for these acquires.
    pub async fn reuse(
        &mut self,
        client: usize,
        permits: &[usize],
        waits: &[usize],
        asks: &[Ask],
    ) -> Batches {
        let drops: Vec<_> = permits.iter().map(|pick| (*pick, End::Drop)).collect();
        let given_up = [self.end(client, 0, &drops).await, self.cancel(client, waits)];
        let asked = self.acquire(client, 0, asks).await;
        let all = given_up.into_iter().chain([asked]);
        all.reduce(|one, other| Batches {
            now: one.now + other.now,
            strays: one.strays + other.strays,
        })
        .expect("three items are chained")
    }

    pub fn lose(&mut self, client: usize, picks: &[usize]) -> Batches {
        let numbers = self.pick(client, picks.iter().copied());
        let ids = numbers.iter().map(|number| self.case.permits[number].id().to_owned());
        let arguments: Vec<_> = std::iter::once("return".to_owned()).chain(ids).collect();
        if !numbers.is_empty() {
            let reply = self.scripts.integers("release", &arguments);
            self.own_calls += 1;
            let held = numbers.iter().map(|number| self.case.model.give_back(*number).into());
            assert_eq!(reply[2..], held.collect::<Vec<i64>>());
        }
        Batches { now: 0, strays: 0 }
    }

    pub async fn change_limit(&mut self, client: usize, changes: &[Change]) -> Batches {
        for change in changes {
            let (semaphore, model) = (self.semaphores[client].clone(), &mut self.case.model);
            let before = model.limit();
            model.set_limit(match change {
                Change::Set(limit) => Some(u64::from(*limit)),
                Change::Add(permits) => Some(before + u64::from(*permits)),
                Change::Clear => None,
            });
            let reported = if matches!(change, Change::Set(_)) { before } else { model.limit() };
            let (what, change) = (format!("{change:?}"), change.clone());
            let call = async move {
                let limit = match change {
                    Change::Set(limit) => semaphore.set_limit(limit).await,
                    Change::Add(permits) => semaphore.add_permits(permits).await,
                    Change::Clear => semaphore.clear_limit().await,
                };
                let failed = |error: Error| Response::Failed(error.to_string());
                limit.map_or_else(failed, |limit| Response::Limit(limit.into()))
            };
            self.start_other(what, Response::Limit(reported), call).await;
        }
        // Each change is one call, which also declares the limit if necessary.
        Batches { now: changes.len() as u64, strays: 0 }
    }

    pub async fn mix(
        &mut self,
        lead: usize,
        asks: &[(usize, Ask)],
        ends: &[(usize, End)],
    ) -> Result<(), String> {
        let old = self.case.requests.len();
        let mut permits: Vec<_> = self.case.permits.keys().copied().collect();
        // If requests are too heavy, a client sends its requests again, and the test cannot see
        // when the client stops.
        let may_end = !self.case.model.has_too_heavy();
        let mut ends = ends.iter().filter(|_| may_end);
        for (index, (client, ask)) in asks.iter().enumerate() {
            give_way_after(lead, index).await;
            let request = self.new_request(*client, ask.weight);
            self.start_acquire(request, ask).await;
            if let Some((pick, end)) = ends.next()
                && let Some(number) = take(&mut permits, *pick)
            {
                let held = self.case.model.holds(number);
                self.case.model.held.retain(|held| held.number != number);
                self.start_end(number, *end, held).await;
            }
        }
        self.settle(false).await?;
        // Each request may be too heavy or may be given up. Either case takes at most two more
        // calls.
        self.strays = 2 * asks.len() as u64;
        self.check_order(old)
    }
}

/// The number of calls that a burst takes, and the number of additional calls that it may take.
pub struct Batches {
    pub now: u64,
    pub strays: u64,
}

/// Yields once, when `lead` operations have been started, so that they run before the others are
/// started.
async fn give_way_after(lead: usize, index: usize) {
    if lead == index && lead > 0 {
        tokio::task::yield_now().await;
    }
}

/// Returns the maximum number of calls: one for the first operation, one for the other operations
/// before the yield, and one for the operations after the yield.
fn batches(count: usize, lead: usize) -> u64 {
    1 + u64::from(count > 1) + u64::from(1 < lead && lead < count)
}

fn take(numbers: &mut Vec<usize>, pick: usize) -> Option<usize> {
    let index = pick.checked_rem(numbers.len())?;
    Some(numbers.remove(index))
}

fn was_held(response: Result<(), Error>) -> Response {
    match response {
        Ok(()) => Response::Held(true),
        Err(Error::Lost { .. }) => Response::Held(false),
        Err(error) => Response::Failed(error.to_string()),
    }
}
