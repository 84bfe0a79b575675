//! Two clients, as two processes would have them, on a real server beside the reference.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use redis_semaphore::{Error, Permit, Semaphore, Semaphores};

use super::reference::{Outcome, Reference, Request};
use super::settle::DEADLINE;
use super::{Ask, Burst, Change, End, Step};
use crate::support::scripts::Scripts;
use crate::support::server::{Server, unique_name};

pub type Future<T> = Pin<Box<dyn std::future::Future<Output = T>>>;
pub type Acquiring = Future<Result<Option<Permit>, Error>>;

/// Longer than the test takes, so that clients call for no reason but our operations.
const NEVER: Duration = Duration::from_secs(24 * 60 * 60);

pub struct Clients {
    server: Server,
    scripts: Scripts,
    processes: Vec<Semaphores>,
    pub semaphores: Vec<Semaphore>,
    /// The number in the next id of each client: they count on.
    next_numbers: Vec<u128>,
    pub case: Case,
    /// Script calls that are not the clients'.
    pub own_calls: u64,
    /// Calls that the last burst may have left for later.
    strays: u64,
}

/// What any operation but an acquire answers.
#[derive(Debug, PartialEq)]
pub enum Answer {
    Held(bool),
    Limit(u64),
    Failed(String),
}

pub struct Other {
    pub what: String,
    pub expected: Answer,
    pub future: Future<Answer>,
}

#[derive(Default)]
pub struct Case {
    pub model: Reference,
    pub requests: Vec<Request>,
    pub acquiring: BTreeMap<usize, Acquiring>,
    pub others: Vec<Other>,
    pub permits: BTreeMap<usize, Arc<Permit>>,
    /// By the number of the request.
    pub ids: Vec<String>,
    pub last_token: u64,
    /// The clients that have declared the limit.
    warm: BTreeSet<usize>,
}

pub async fn poll_once<T>(future: &mut Future<T>) -> Poll<T> {
    std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

pub fn owner(client: usize) -> String {
    format!("client{client}")
}

impl Clients {
    pub async fn connect() -> Self {
        let server = Server::start();
        let mut scripts = Scripts::new(server.connect(), "unused");
        for script in ["acquire", "release", "refresh", "wake", "limit", "inspect"] {
            // Refused, but the server knows the script from now on: no call is made twice.
            assert!(scripts.call(script, "").is_err() || script == "wake");
        }
        let (mut processes, mut next_numbers) = (Vec::new(), Vec::new());
        for client in 0..2 {
            let builder = Semaphores::builder().owner(owner(client)).liveness(NEVER);
            // On a busy machine, too, no call is repeated: they are counted.
            let builder = builder.response_timeout(DEADLINE);
            let process = builder.connect(&server.url()).await.unwrap();
            let semaphore = process.semaphore(unique_name()).limit(1).build().unwrap();
            let first = semaphore.acquire().await.unwrap();
            let (_, number) = first.id().split_once(':').unwrap();
            next_numbers.push(u128::from_str_radix(number, 16).unwrap() + 1);
            first.release().await.unwrap();
            processes.push(process);
        }
        let (semaphores, case, own_calls, strays) = Default::default();
        Self { server, scripts, processes, semaphores, next_numbers, case, own_calls, strays }
    }

    pub fn begin_case(&mut self, limit: u32) {
        let name = unique_name();
        self.scripts = Scripts::new(self.server.connect(), &name);
        let build = |semaphores: &Semaphores| {
            semaphores.semaphore(&name).limit(limit).lease(NEVER).build().unwrap()
        };
        self.semaphores = self.processes.iter().map(build).collect();
        if !self.case.requests.is_empty() {
            // It failed, and what it left is given back while the next one runs.
            self.strays = 100;
        }
        let model = Reference { declared: limit.into(), ..Reference::default() };
        self.case = Case { model, ..Case::default() };
    }

    /// Nothing is left behind of what clients drop.
    pub async fn end_case(&mut self) -> Result<(), String> {
        self.case.model.held.clear();
        self.case.model.queue.clear();
        self.case.acquiring.clear();
        self.case.permits.clear();
        // One of each client: permits that were lost before are given back all the same.
        self.strays += 2;
        self.settle(true).await?;
        self.case = Case::default();
        Ok(())
    }

    /// All script calls so far.
    fn calls(&mut self) -> u64 {
        let mut info = redis::cmd("INFO");
        let stats: String = info.arg("commandstats").query(&mut self.scripts.connection).unwrap();
        let counts = stats.lines().filter(|line| line.starts_with("cmdstat_eval"));
        counts.map(|line| line.split(['=', ',']).nth(1).unwrap().parse::<u64>().unwrap()).sum()
    }

    pub async fn apply(&mut self, step: &Step) -> Result<(), String> {
        let Step { client, lead, burst } = step;
        let (calls_before, own_before) = (self.calls(), self.own_calls);
        let heavy_before = self.refused_as_too_heavy();
        let batches = match burst {
            Burst::Acquire(asks) => self.acquire(*client, *lead, asks).await,
            Burst::End(ends) => self.end(*client, *lead, ends).await,
            Burst::Refresh(picks) => self.refresh(*client, *lead, picks).await,
            Burst::Cancel(picks) => self.cancel(*client, picks),
            Burst::Lose(picks) => self.lose(*client, picks),
            Burst::Limit(changes) => self.change_limit(*client, changes).await,
            Burst::Mixed(asks, ends) => return self.mix(*lead, asks, ends).await,
        };
        self.settle(true).await?;
        // One that was too heavy is refused in a call of its own. Where it was queued its client
        // may have asked again, and has given back what it asked for.
        let heavy = 4 * (self.refused_as_too_heavy() - heavy_before);
        let calls = self.calls() - calls_before - (self.own_calls - own_before);
        let allowed = batches.now + batches.strays + heavy + self.strays;
        self.strays = batches.strays + heavy;
        match calls <= allowed {
            true => Ok(()),
            false => Err(format!("{calls} calls, at most {allowed} are needed")),
        }
    }

    fn refused_as_too_heavy(&self) -> u64 {
        let outcomes = self.case.model.outcomes.values();
        outcomes.filter(|outcome| **outcome == Outcome::TooHeavy).count() as u64
    }

    /// The first acquire or change of the limit declares it: one call.
    fn warm_up(&mut self, client: usize) -> u64 {
        self.case.warm.insert(client).into()
    }

    /// An acquire that is dropped while it declares leaves that to the next.
    fn warm_up_by(&mut self, client: usize, ask: &Ask) -> u64 {
        match ask.is_dropped {
            true => (!self.case.warm.contains(&client)).into(),
            false => self.warm_up(client),
        }
    }

    fn new_request(&mut self, client: usize, weight: u32) -> Request {
        let number = self.case.requests.len();
        let request = Request { number, client, weight: weight.into() };
        self.case.requests.push(request);
        let id = format!("{}:{:032x}", owner(client), self.next_numbers[client]);
        self.next_numbers[client] += 1;
        self.case.ids.push(id);
        request
    }

    /// Polls it for the first time: so it arrives in its lane.
    async fn start_acquire(&mut self, request: Request, ask: &Ask) {
        let semaphore = self.semaphores[request.client].clone();
        let Ask { weight, waits, is_dropped } = *ask;
        let mut acquiring: Acquiring = Box::pin(async move {
            match waits {
                true => semaphore.acquire_many(weight).await.map(Some),
                false => semaphore.try_acquire_many(weight).await,
            }
        });
        assert!(poll_once(&mut acquiring).await.is_pending(), "nothing answers at once");
        if !is_dropped {
            self.case.acquiring.insert(request.number, acquiring);
        }
    }

    async fn start_other(
        &mut self,
        what: String,
        expected: Answer,
        future: impl std::future::Future<Output = Answer> + 'static,
    ) {
        let mut future: Future<Answer> = Box::pin(future);
        assert!(poll_once(&mut future).await.is_pending(), "nothing answers at once");
        self.case.others.push(Other { what, expected, future });
    }

    async fn acquire(&mut self, client: usize, lead: usize, asks: &[Ask]) -> Batches {
        let is_dropped = asks.iter().any(|ask| ask.is_dropped);
        let mut declared = 0;
        for (index, ask) in asks.iter().enumerate() {
            declared += self.warm_up_by(client, ask);
            give_way_after(lead, index).await;
            let request = self.new_request(client, ask.weight);
            self.start_acquire(request, ask).await;
            if !ask.is_dropped {
                self.case.model.ask(request, ask.waits);
            }
        }
        let batches = batches(asks.len());
        // Those that were under way are given back, and once more when their answers come.
        let strays = if is_dropped { 2 * batches } else { 0 };
        Batches { now: batches + declared, strays }
    }

    fn permits_of(&self, client: usize) -> Vec<usize> {
        let is_theirs = |number: &usize| self.case.requests[*number].client == client;
        self.case.permits.keys().copied().filter(is_theirs).collect()
    }

    /// The permits of a client that were picked, each once.
    fn pick(&self, client: usize, picks: impl Iterator<Item = usize>) -> Vec<usize> {
        let mut permits = self.permits_of(client);
        picks.map_while(|pick| take(&mut permits, pick)).collect()
    }

    async fn end(&mut self, client: usize, lead: usize, ends: &[(usize, End)]) -> Batches {
        let numbers = self.pick(client, ends.iter().map(|(pick, _)| *pick));
        // A client that is told of a request that is too heavy asks again. Whether that meets a
        // limit set at run time, which a forget sets, is not known.
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
            // Only ends of one kind share a call.
            now += u64::from(last.replace(end) != Some(end));
        }
        // What was lost before may be given back when all looks settled.
        let strays = (last == Some(End::Drop)).into();
        Batches { now: now + batches(numbers.len()) - 1, strays }
    }

    async fn start_end(&mut self, number: usize, end: End, held: bool) {
        let permit = Arc::into_inner(self.case.permits.remove(&number).unwrap()).unwrap();
        let what = format!("{end:?} of {number}");
        let expected = Answer::Held(held);
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

    async fn refresh(&mut self, client: usize, lead: usize, picks: &[usize]) -> Batches {
        let permits = self.permits_of(client);
        let (mut now, mut in_call) = (1, BTreeSet::new());
        if permits.is_empty() {
            return Batches { now: 0, strays: 0 };
        }
        for (index, pick) in picks.iter().enumerate() {
            give_way_after(lead, index).await;
            let number = permits[pick % permits.len()];
            let permit = self.case.permits[&number].clone();
            let expected = Answer::Held(self.case.model.holds(number));
            let refresh = async move { was_held(permit.refresh().await) };
            self.start_other(format!("refresh of {number}"), expected, refresh).await;
            // No permit is twice in a call.
            if !in_call.insert(number) {
                in_call = BTreeSet::from([number]);
                now += 1;
            }
        }
        Batches { now: now + batches(picks.len()) - 1, strays: 0 }
    }

    fn cancel(&mut self, client: usize, picks: &[usize]) -> Batches {
        let model = &mut self.case.model;
        let theirs = model.queue.iter().filter(|waiter| waiter.client == client);
        let mut waiters: Vec<_> = theirs.map(|waiter| waiter.number).collect();
        let numbers: Vec<_> = picks.iter().map_while(|pick| take(&mut waiters, *pick)).collect();
        for number in &numbers {
            self.case.acquiring.remove(number);
        }
        model.leave(&numbers);
        // One that did not look at its answer yet is given back once more when it comes.
        Batches { now: (!numbers.is_empty()).into(), strays: 1 }
    }

    fn lose(&mut self, client: usize, picks: &[usize]) -> Batches {
        let numbers = self.pick(client, picks.iter().copied());
        let ids = numbers.iter().map(|number| self.case.ids[*number].clone());
        let arguments: Vec<_> = std::iter::once("return".to_owned()).chain(ids).collect();
        if !numbers.is_empty() {
            let reply = self.scripts.integers("release", &arguments);
            self.own_calls += 1;
            let held = numbers.iter().map(|number| self.case.model.give_back(*number).into());
            assert_eq!(reply[2..], held.collect::<Vec<i64>>());
        }
        Batches { now: 0, strays: 0 }
    }

    async fn change_limit(&mut self, client: usize, changes: &[Change]) -> Batches {
        let cold = self.warm_up(client);
        for change in changes {
            let (semaphore, model) = (self.semaphores[client].clone(), &mut self.case.model);
            let before = model.limit();
            model.set_limit(match change {
                Change::Set(limit) => Some(u64::from(*limit)),
                Change::Add(permits) => Some(before + u64::from(*permits)),
                Change::Clear => None,
            });
            let told = if matches!(change, Change::Set(_)) { before } else { model.limit() };
            let (what, change) = (format!("{change:?}"), change.clone());
            let call = async move {
                let limit = match change {
                    Change::Set(limit) => semaphore.set_limit(limit).await,
                    Change::Add(permits) => semaphore.add_permits(permits).await,
                    Change::Clear => semaphore.clear_limit().await,
                };
                let failed = |error: Error| Answer::Failed(error.to_string());
                limit.map_or_else(failed, |limit| Answer::Limit(limit.into()))
            };
            self.start_other(what, Answer::Limit(told), call).await;
        }
        Batches { now: changes.len() as u64 + cold, strays: 0 }
    }

    async fn mix(
        &mut self,
        lead: usize,
        asks: &[(usize, Ask)],
        ends: &[(usize, End)],
    ) -> Result<(), String> {
        let old = self.case.requests.len();
        let mut permits: Vec<_> = self.case.permits.keys().copied().collect();
        // What these would start has no end that can be seen: a client would ask again.
        let may_end = !self.case.model.has_too_heavy();
        let mut ends = ends.iter().filter(|_| may_end);
        for (index, (client, ask)) in asks.iter().enumerate() {
            self.warm_up_by(*client, ask);
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
        // As many as that are too heavy, or given up.
        self.strays = 2 * asks.len() as u64;
        self.check_order(old)
    }
}

/// How many calls a burst takes, and how many more it may.
struct Batches {
    now: u64,
    strays: u64,
}

/// Lets what came before have its turn. What follows gathers, as nothing here waits for an answer.
async fn give_way_after(lead: usize, index: usize) {
    if lead == index && lead > 0 {
        tokio::task::yield_now().await;
    }
}

/// The first goes out alone. All others gather meanwhile.
fn batches(count: usize) -> u64 {
    if count > 1 { 2 } else { 1 }
}

fn take(numbers: &mut Vec<usize>, pick: usize) -> Option<usize> {
    let index = pick.checked_rem(numbers.len())?;
    Some(numbers.remove(index))
}

fn was_held(answer: Result<bool, Error>) -> Answer {
    answer.map_or_else(|error| Answer::Failed(error.to_string()), Answer::Held)
}
