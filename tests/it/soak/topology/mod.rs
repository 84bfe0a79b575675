//! Where a campaign is played: which servers there are, how to connect to them, and what can be
//! done to them.

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

/// What the semaphores are called, in the order of their kinds.
pub type Names = [String; KINDS.len()];

pub trait Topology {
    const NAME: &str;
    /// Besides what is done to clients.
    const FAULTS: &[Fault];
    const BOUNDS: Bounds;
    /// After a fault has been undone all processes must be let in again within this time.
    const RECOVERY: Duration;

    fn names(&self) -> Names;

    /// For the clients.
    fn address(&self) -> Address;

    /// For the nemesis and the watcher, past whatever is on the clients' way.
    fn direct_address(&self) -> Address;

    /// URLs of all servers, one by one.
    fn servers(&self) -> Vec<String>;

    /// To the server that has the keys of this semaphore. All servers must be well.
    fn home_of(&self, semaphore: usize) -> Connection;

    /// How far the servers' clock went to and fro.
    fn clock_moved(&self) -> Duration {
        Duration::ZERO
    }

    /// What has to be done next, where that is not for the plan to say.
    fn due(&self) -> Option<Fault> {
        None
    }

    /// Does it, and undoes it after a while. A failover is over when the replica is promoted.
    async fn inflict(&mut self, fault: Fault, nemesis: &mut Nemesis<'_>);
}

/// What the topology's part of a fault may need.
pub struct Nemesis<'a> {
    pub crew: &'a mut Crew,
    pub log: &'a Log,
    pub random: &'a mut fastrand::Rng,
    pub while_it_lasts: Duration,
}

/// Those of a single server.
const BOUNDS: Bounds = Bounds {
    lease: LEASE.as_nanos() as Moment,
    late: 300_000_000,
    way: 300_000_000,
    // Twice the longest work of the slow ones.
    wait: 10_000_000_000,
    patience: 2 * RESPONSE_TIMEOUT.as_nanos() as Moment,
    // It counts in ms, and time is slewed.
    tick: 2_000_000,
    reconnecting: RESPONSE_TIMEOUT.as_nanos() as Moment / 2,
};

/// After a failover the first call has to find the new primary.
const BOUNDS_WITH_FAILOVER: Bounds = Bounds { way: 1_000_000_000, ..BOUNDS };

/// Long enough for a call that had been on its way to fail, and for another one after it.
const CALLS_END: Duration = RESPONSE_TIMEOUT.saturating_mul(2);

/// After so long without an answer a server counts as gone: none that is only slow, on a machine
/// with too much to do, may be replaced behind the nemesis' back, as what is lost then has no
/// excuse.
const SILENCE: Duration = Duration::from_millis(2500);

/// Where clients are told to connect.
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
                // Its type depends on a feature of redis-rs.
                let service = String::from(service);
                let client = SentinelClient::build(urls, service, None, primary).unwrap();
                builder.connect_sentinel(client).await
            }
            Self::Cluster(urls) => builder.connect_cluster(urls.iter().map(String::as_str)).await,
        }
    }
}

/// Permits granted until now may have been lost since then: a replica that is promoted need not
/// have all that its primary has answered. For servers whose clocks are the machine's.
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
