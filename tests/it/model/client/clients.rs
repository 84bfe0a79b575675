//! Two clients, as two processes would have them, on a real server beside the reference.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use redis_semaphore::{Error, Permit, Semaphore, SemaphoreClient};

use super::reference::{Outcome, Reference, Request};
use super::settle::DEADLINE;
use super::{Burst, Step};
use test_support::scripts::{Scripts, part};
use test_support::server::{Server, unique_name};

pub type Future<T> = Pin<Box<dyn std::future::Future<Output = T>>>;
pub type Acquiring = Future<Result<Option<Permit>, Error>>;

/// Longer than the test takes, so that clients call for no reason but our operations.
const NEVER: Duration = Duration::from_secs(24 * 60 * 60);

pub struct Clients {
    server: Server,
    pub scripts: Scripts,
    processes: Vec<SemaphoreClient>,
    pub semaphores: Vec<Semaphore>,
    /// The number in the next id of each client: they count on.
    pub next_numbers: Vec<u64>,
    pub case: Case,
    /// Script calls that are not the clients'.
    pub own_calls: u64,
    /// Calls that the last burst may have left for later.
    pub strays: u64,
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
    /// By the number of the request, as far as they are [`counted`].
    pub ids: Vec<String>,
    pub last_token: u64,
}

pub async fn poll_once<T>(future: &mut Future<T>) -> Poll<T> {
    std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

pub fn client_name(client: usize) -> String {
    format!("client{client}")
}

/// The digits of a nonce, which stand for six bits each.
const DIGITS: &str = "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";

/// What can be foretold of an ID: its client name, and the half of its nonce that is counted. The
/// other one is random.
pub fn counted(id: &str) -> String {
    let (client_name, _) = part(id, 1).rsplit_once('.').unwrap();
    let digits = part(id, 4)[..11].chars().map(|digit| DIGITS.find(digit).unwrap() as u128);
    let number = digits.fold(0, |number, digit| number << 6 | digit);
    format!("{client_name}:{number:016x}")
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
            let builder = SemaphoreClient::builder()
                .client_name(client_name(client))
                .heartbeat_timeout(NEVER);
            // On a busy machine, too, no call is repeated: they are counted.
            let builder = builder.response_timeout(DEADLINE);
            let process = builder.connect(&server.url()).await.unwrap();
            let semaphore = process.semaphore(unique_name()).limit(1).build().unwrap();
            let first = semaphore.acquire().await.unwrap();
            let counted = counted(first.id());
            let (_, number) = counted.split_once(':').unwrap();
            next_numbers.push(u64::from_str_radix(number, 16).unwrap().wrapping_add(1));
            first.release().await.unwrap();
            processes.push(process);
        }
        let (semaphores, case, own_calls, strays) = Default::default();
        Self { server, scripts, processes, semaphores, next_numbers, case, own_calls, strays }
    }

    pub fn begin_case(&mut self, limit: u32) {
        let name = unique_name();
        self.scripts = Scripts::new(self.server.connect(), &name);
        let build = |semaphores: &SemaphoreClient| {
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
            Burst::Reuse(permits, waits, asks) => self.reuse(*client, permits, waits, asks).await,
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
}
