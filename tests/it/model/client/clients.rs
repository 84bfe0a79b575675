//! Two clients of a real server. The clients act like two processes, and their results are compared
//! with the reference.

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

/// This time is longer than the test takes, so clients make no calls other than the test's
/// operations.
const NEVER: Duration = Duration::from_secs(24 * 60 * 60);

pub struct Clients {
    server: Server,
    pub scripts: Scripts,
    processes: Vec<SemaphoreClient>,
    pub semaphores: Vec<Semaphore>,
    /// The number in the next ID of each client, which increases by one.
    pub next_numbers: Vec<u64>,
    pub case: Case,
    /// The number of script calls that the test made itself.
    pub own_calls: u64,
    /// The number of calls that the last burst may have postponed.
    pub strays: u64,
}

/// The result of an operation other than an acquire.
#[derive(Debug, PartialEq)]
pub enum Response {
    Held(bool),
    Limit(u64),
    Failed(String),
}

pub struct Other {
    pub what: String,
    pub expected: Response,
    pub future: Future<Response>,
}

#[derive(Default)]
pub struct Case {
    pub model: Reference,
    pub requests: Vec<Request>,
    pub acquiring: BTreeMap<usize, Acquiring>,
    pub others: Vec<Other>,
    pub permits: BTreeMap<usize, Arc<Permit>>,
    /// The [`counted`] part of each ID, by the number of the request.
    pub ids: Vec<String>,
    pub last_token: u64,
}

pub async fn poll_once<T>(future: &mut Future<T>) -> Poll<T> {
    std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

pub fn client_name(client: usize) -> String {
    format!("client{client}")
}

/// The digits of a nonce. Each digit stands for six bits.
const DIGITS: &str = "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";

/// Returns the predictable part of an ID: the client name, and the counted half of the nonce. The
/// other half is random.
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
            // The call fails, but it loads the script, so that no later call is sent twice.
            assert!(scripts.call(script, "").is_err() || script == "wake");
        }
        let (mut processes, mut next_numbers) = (Vec::new(), Vec::new());
        for client in 0..2 {
            let builder = SemaphoreClient::builder()
                .client_name(client_name(client))
                .heartbeat_timeout(NEVER);
            // The test counts calls, so no call may be retried, even on a busy machine.
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
            // The previous case failed. Its permits are released while the next case runs.
            self.strays = 100;
        }
        let model = Reference { declared: limit.into(), ..Reference::default() };
        self.case = Case { model, ..Case::default() };
    }

    /// Checks that nothing remains after the clients drop everything.
    pub async fn end_case(&mut self) -> Result<(), String> {
        self.case.model.held.clear();
        self.case.model.queue.clear();
        self.case.acquiring.clear();
        self.case.permits.clear();
        // Each client may make one more call, because permits that were lost before are still
        // released.
        self.strays += 2;
        self.settle(true).await?;
        self.case = Case::default();
        Ok(())
    }

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
        // A request that was too heavy is rejected in its own call. If the request was queued, its
        // client may have sent all requests again, and has released the heavy requests.
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
