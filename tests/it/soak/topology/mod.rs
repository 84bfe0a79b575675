//! The topologies of a test run: the servers, how to connect to them, and their faults.

pub mod cluster;
pub mod sentinel;
pub mod single;

use std::time::{Duration, SystemTime};

use redis::Connection;
use redis_semaphore::redis::sentinel::{SentinelClient, SentinelServerType};
use redis_semaphore::{Error, SemaphoreClient, SemaphoreClientBuilder};
use serde::{Deserialize, Serialize};

use super::checker::Bounds;
use super::crew::{Crew, Log};
use super::faults::Fault;
use super::history::{ALL, Moment, What};
use super::{KINDS, LEASE, RESPONSE_TIMEOUT};

/// The names of the semaphores, in the order of their kinds.
pub type Names = [String; KINDS.len()];

pub trait Topology {
    const NAME: &str;
    /// The faults in addition to those of clients.
    const FAULTS: &[Fault];
    const BOUNDS: Bounds;
    /// After a fault, all processes must be granted permits again within this time.
    const RECOVERY: Duration;

    fn names(&self) -> Names;

    fn address(&self) -> Address;

    /// Returns the address for the nemesis and the watcher. It avoids the clients' proxy.
    fn direct_address(&self) -> Address;

    fn servers(&self) -> Vec<String>;

    /// Connects to the server that has the keys of this semaphore. All servers must be running.
    fn home_of(&self, semaphore: usize) -> Connection;

    /// Returns how far the servers' clock moved, in both directions.
    fn clock_moved(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns the fault that must be next, regardless of the plan.
    fn due(&self) -> Option<Fault> {
        None
    }

    /// Injects the fault, and undoes it after some time. A failover counts as undone when the
    /// replica is promoted.
    async fn inflict(&mut self, fault: Fault, nemesis: &mut Nemesis<'_>);
}

/// Values that the faults of a topology may need.
pub struct Nemesis<'a> {
    pub crew: &'a mut Crew,
    pub log: &'a Log,
    pub random: &'a mut fastrand::Rng,
    pub while_it_lasts: Duration,
}

const BOUNDS: Bounds = Bounds {
    lease: LEASE.as_nanos() as Moment,
    late: 300_000_000,
    way: 300_000_000,
    // This is more than twice the longest time for which a permit is held (4.5 s).
    wait: 10_000_000_000,
    patience: 2 * RESPONSE_TIMEOUT.as_nanos() as Moment,
    // The server counts in ms, and its time may be slewed.
    tick: 2_000_000,
    reconnecting: RESPONSE_TIMEOUT.as_nanos() as Moment / 2,
    subscribing: 0,
};

/// The bounds with failovers. The first call after a failover has to find the new primary.
const BOUNDS_WITH_FAILOVER: Bounds = Bounds { way: 1_000_000_000, ..BOUNDS };

/// In this time, a call that is under way can fail, and one more call can fail after it.
const CALLS_END: Duration = RESPONSE_TIMEOUT.saturating_mul(2);

/// After this time without a reply, a server that the nemesis kills or stops counts as failed.
const SILENCE: Duration = Duration::from_millis(2500);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Address {
    Server(String),
    Sentinels { urls: Vec<String>, service: String },
    Cluster(Vec<String>),
}

impl Address {
    pub async fn connect(&self, builder: SemaphoreClientBuilder) -> Result<SemaphoreClient, Error> {
        match self {
            Self::Server(url) => builder.connect(url).await,
            Self::Sentinels { urls, service } => {
                let urls = urls.iter().map(String::as_str).collect();
                let primary = SentinelServerType::Master;
                let service = String::from(service);
                let client = SentinelClient::build(urls, service, None, primary).unwrap();
                builder.connect_sentinel(client).await
            }
            Self::Cluster(urls) => builder.connect_cluster(urls.iter().map(String::as_str)).await,
        }
    }
}

/// Records that permits granted until now may have been lost after `since`, because a promoted
/// replica may lack the last acknowledged writes. This function works only for servers that use the
/// machine's clock.
fn unsettle(log: &Log, since: Moment) {
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let token = clock.as_micros() as u64;
    (0..KINDS.len())
        .for_each(|semaphore| log.say(ALL, What::Unsettled { semaphore, since, token }));
}

fn kill_connections(server: &mut Connection) {
    command::<u32>(server, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    command::<u32>(server, &["CLIENT", "KILL", "TYPE", "pubsub"]);
}

fn forget_scripts(server: &mut Connection) {
    command(server, &["SCRIPT", "FLUSH"])
}

fn command<T: redis::FromRedisValue>(server: &mut Connection, words: &[&str]) -> T {
    redis::cmd(words[0]).arg(&words[1..]).query(server).unwrap()
}
