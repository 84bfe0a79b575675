//! A cluster of three primaries, each with a replica. The semaphores are spread over the primaries.
//! Nothing is kept on disk.

use std::time::Duration;

use nix::sys::signal::Signal;
use redis::Connection;
use tokio::time::sleep;

use test_support::cluster;
use test_support::scripts::KEYS;
use test_support::server::Server;

use super::super::checker::Bounds;
use super::super::crew::Log;
use super::super::faults::Fault;
use super::super::history::now;
use super::{Address, CALLS_END, Names, Nemesis, SILENCE, Topology};
use super::{command, forget_scripts, kill_connections, unsettle};

const PRIMARIES: usize = 3;
/// During a slow move of a slot, the keys of a semaphore are split over both nodes for this time.
const PARTED: Duration = Duration::from_millis(300);

pub struct Cluster {
    cluster: cluster::Cluster,
    names: Names,
    down: Option<usize>,
}

impl Topology for Cluster {
    const NAME: &str = "cluster";
    const FAULTS: &[Fault] = &[
        Fault::KillConnections,
        Fault::ForgetScripts,
        Fault::KillNode,
        Fault::StopNode,
        Fault::TakeOver,
        Fault::MoveSlot,
    ];
    const BOUNDS: Bounds =
        Bounds { subscribing: super::BOUNDS.reconnecting, ..super::BOUNDS_WITH_FAILOVER };
    const RECOVERY: Duration = Duration::from_secs(30);

    fn names(&self) -> Names {
        self.names.clone()
    }

    fn address(&self) -> Address {
        Address::Cluster(self.cluster.urls())
    }

    fn direct_address(&self) -> Address {
        self.address()
    }

    fn servers(&self) -> Vec<String> {
        self.cluster.nodes.iter().map(|node| node.admin_url()).collect()
    }

    fn home_of(&self, semaphore: usize) -> Connection {
        self.cluster.connect(self.cluster.home_of(&self.names[semaphore]))
    }

    fn due(&self) -> Option<Fault> {
        self.down.map(|_| Fault::Rejoin)
    }

    async fn inflict(&mut self, fault: Fault, nemesis: &mut Nemesis<'_>) {
        if fault == Fault::Rejoin {
            return self.rejoin(nemesis.log).await;
        }
        let name = nemesis.random.choice(&self.names).unwrap().clone();
        let home = self.cluster.home_of(&name);
        match fault {
            Fault::KillConnections => kill_connections(&mut self.cluster.connect(home)),
            Fault::ForgetScripts => forget_scripts(&mut self.cluster.connect(home)),
            Fault::KillNode => self.lose(home, Server::kill, nemesis.log),
            Fault::StopNode => {
                self.lose(home, |node| node.signal(Signal::SIGSTOP), nemesis.log);
            }
            Fault::TakeOver => self.take_over(home),
            Fault::MoveSlot => self.move_slot(&name, home, nemesis).await,
            _ => unreachable!("{fault:?} is nothing that happens here"),
        }
    }
}

impl Cluster {
    /// Starts the cluster, or returns `None` if the servers are too old.
    pub async fn start() -> Option<Self> {
        let cluster = cluster::Cluster::start(PRIMARIES, true).await?;
        (0..cluster.nodes.len()).for_each(|node| prepare(&cluster, node));
        let names = std::array::from_fn(|semaphore| cluster.name_at(semaphore % PRIMARIES));
        Some(Self { cluster, names, down: None })
    }

    /// Returns the other node of the pair, which replaces this node in a failover.
    fn other(node: usize) -> usize {
        (node + PRIMARIES) % (2 * PRIMARIES)
    }

    /// Waits until the other node can take over, and has all writes so far, including runtime
    /// limits.
    fn is_ready(&self, primary: usize) {
        self.cluster.agrees(&self.names);
        self.cluster.is_in_step(primary, Self::other(primary));
    }

    /// Kills or stops this primary, and waits for the failover.
    fn lose(&mut self, primary: usize, lose: impl FnOnce(&mut Server), log: &Log) {
        self.is_ready(primary);
        let replica = Self::other(primary);
        may_fail_over(&self.cluster, replica, true);
        let since = now();
        lose(&mut self.cluster.nodes[primary]);
        self.cluster.sees_promoted(replica);
        unsettle(log, since);
        may_fail_over(&self.cluster, replica, false);
        self.down = Some(primary);
    }

    async fn rejoin(&mut self, log: &Log) {
        let node = self.down.take().expect("a server is down");
        sleep(CALLS_END).await;
        if !self.cluster.nodes[node].is_running() {
            // The node replies only after it has received messages from the other nodes.
            self.cluster.nodes[node].start_again();
            prepare(&self.cluster, node);
            return self.is_demoted(node);
        }
        // For a moment the node still considers itself a primary. A client that looks up a slot at
        // this moment may use this node.
        let since = now();
        self.cluster.nodes[node].signal(Signal::SIGCONT);
        self.is_demoted(node);
        unsettle(log, since);
    }

    /// Runs a planned failover. The primary rejects new writes until its replica has all earlier
    /// writes and has taken over.
    fn take_over(&self, primary: usize) {
        self.is_ready(primary);
        self.cluster.fail_over_to(Self::other(primary));
        self.is_demoted(primary);
    }

    async fn move_slot(&self, name: &str, from: usize, nemesis: &mut Nemesis<'_>) {
        self.is_ready(from);
        let elsewhere = [1, 2].map(|steps| (from + steps) % PRIMARIES);
        let elsewhere = *nemesis.random.choice(&elsewhere).unwrap();
        let to = match self.cluster.is_primary(elsewhere) {
            true => elsewhere,
            false => Self::other(elsewhere),
        };
        let (first, rest) = KEYS.split_at(2);
        self.cluster.begin_to_move(name, from, to, first);
        if nemesis.random.bool() {
            sleep(PARTED).await;
        }
        self.cluster.begin_to_move(name, from, to, rest);
        self.cluster.end_move(name, to);
    }

    fn is_demoted(&self, node: usize) {
        self.cluster.sees_demoted(node);
        self.cluster.agrees(&self.names);
    }
}

/// Sets the time without a reply after which this node considers another node failed. Forbids
/// automatic failovers: on a busy machine, a failover could happen at a time when no fault is
/// active.
fn prepare(cluster: &cluster::Cluster, node: usize) {
    let time = SILENCE.as_millis().to_string();
    let set = ["CONFIG", "SET", "cluster-node-timeout", &time];
    let () = command(&mut cluster.connect(node), &set);
    may_fail_over(cluster, node, false);
}

/// Sets whether this replica may replace its primary by itself.
fn may_fail_over(cluster: &cluster::Cluster, replica: usize, may: bool) {
    let forbidden = if may { "no" } else { "yes" };
    let set = ["CONFIG", "SET", "cluster-replica-no-failover", forbidden];
    command(&mut cluster.connect(replica), &set)
}
