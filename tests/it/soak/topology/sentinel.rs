//! A primary and its replica, watched by sentinels. Nothing is kept on disk.

use std::time::Duration;

use nix::sys::signal::Signal;
use redis::Connection;
use tokio::time::sleep;

use test_support::observer::until;
use test_support::replicated::{Pair, SERVICE, Sentinels};
use test_support::server::Server;

use super::super::KINDS;
use super::super::checker::Bounds;
use super::super::crew::Log;
use super::super::faults::Fault;
use super::super::history::now;
use super::{Address, CALLS_END, Names, Nemesis, SILENCE, Topology};
use super::{forget_scripts, kill_connections, unsettle};

/// The sentinels' usual patience is long: on a busy machine, a failover could otherwise happen at a
/// time when no fault is active.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Sentinel {
    pair: Pair,
    sentinels: Sentinels,
    down: Option<usize>,
}

impl Topology for Sentinel {
    const NAME: &str = "sentinel";
    const FAULTS: &[Fault] = &[
        Fault::KillConnections,
        Fault::ForgetScripts,
        Fault::KillPrimary,
        Fault::StopPrimary,
        Fault::FailOver,
    ];
    const BOUNDS: Bounds = super::BOUNDS_WITH_FAILOVER;
    const RECOVERY: Duration = Duration::from_secs(30);

    fn names(&self) -> Names {
        KINDS.each_ref().map(|kind| kind.name.to_owned())
    }

    fn address(&self) -> Address {
        Address::Sentinels { urls: self.sentinels.urls(), service: SERVICE.to_owned() }
    }

    fn direct_address(&self) -> Address {
        self.address()
    }

    fn servers(&self) -> Vec<String> {
        self.pair.servers.iter().map(|server| server.admin_url()).collect()
    }

    fn home_of(&self, _semaphore: usize) -> Connection {
        self.pair.connect(self.primary())
    }

    fn due(&self) -> Option<Fault> {
        self.down.map(|_| Fault::Rejoin)
    }

    async fn inflict(&mut self, fault: Fault, nemesis: &mut Nemesis<'_>) {
        if fault == Fault::Rejoin {
            return self.rejoin(nemesis.random).await;
        }
        let (primary, log) = (self.primary(), nemesis.log);
        match fault {
            Fault::KillConnections => kill_connections(&mut self.pair.connect(primary)),
            Fault::ForgetScripts => forget_scripts(&mut self.pair.connect(primary)),
            Fault::KillPrimary => self.lose(primary, Server::kill, log),
            Fault::StopPrimary => {
                self.lose(primary, |server| server.signal(Signal::SIGSTOP), log);
            }
            Fault::FailOver => self.fail_over(primary, log),
            _ => unreachable!("{fault:?} is nothing that happens here"),
        }
    }
}

impl Sentinel {
    pub fn start() -> Self {
        let pair = Pair::start();
        let sentinels = Sentinels::watch(&pair);
        Self { pair, sentinels, down: None }
    }

    fn primary(&self) -> usize {
        let primaries = [0, 1].into_iter().filter(|server| self.pair.role(*server) == "master");
        let primaries: Vec<usize> = primaries.collect();
        let [primary] = primaries[..] else { panic!("these are primaries: {primaries:?}") };
        primary
    }

    /// Waits until the other server can take over, and has all writes so far, including runtime
    /// limits.
    fn is_ready(&self, primary: usize) {
        until("a failover is possible", || self.sentinels.are_content(&self.pair));
        until("the replica has all writes", || {
            self.pair.servers[primary].is_copied_to(&self.pair.servers[1 - primary])
        });
    }

    /// Kills or stops this primary, and waits for the failover.
    fn lose(&mut self, primary: usize, lose: impl FnOnce(&mut Server), log: &Log) {
        self.is_ready(primary);
        self.sentinels.be_patient(SILENCE);
        let since = now();
        lose(&mut self.pair.servers[primary]);
        self.other_is_promoted(primary);
        unsettle(log, since);
        self.sentinels.be_patient(PATIENCE);
        self.down = Some(primary);
    }

    /// Restarts the old primary, which still considers itself a primary. No client may use this
    /// server, so no errors are excused.
    async fn rejoin(&mut self, random: &mut fastrand::Rng) {
        let server = self.down.take().expect("a server is down");
        let other = self.pair.servers[1 - server].port;
        until("the sentinels name the new primary", || self.sentinels.all_name(other));
        sleep(CALLS_END).await;
        let was_stopped = self.pair.servers[server].is_running();
        match was_stopped {
            true => self.pair.servers[server].signal(Signal::SIGCONT),
            false => self.pair.servers[server].start_again(),
        }
        // Without this call, the sentinels demote the server after 8 s or 20 s. A real server that
        // was killed would find its new role in its configuration file.
        if !was_stopped || random.bool() {
            self.pair.demote(server, 1 - server);
        }
        self.is_demoted(server);
    }

    /// Starts a failover. The sentinels promote one server before they demote the other, and do not
    /// wait for writes that the other server still acknowledges.
    fn fail_over(&self, primary: usize, log: &Log) {
        self.is_ready(primary);
        let since = now();
        self.sentinels.fail_over();
        self.other_is_promoted(primary);
        until("the old primary is demoted", || self.pair.role(primary).starts_with("slave"));
        unsettle(log, since);
        self.is_demoted(primary);
    }

    fn other_is_promoted(&self, primary: usize) {
        until("the replica is promoted", || self.pair.role(1 - primary) == "master");
    }

    fn is_demoted(&self, primary: usize) {
        until("the old primary is a replica", || self.pair.role(primary) == "slave connected");
    }
}
