use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use redis::{Connection, FromRedisValue, Value};
use redis_semaphore::{ConnectErrorKind, SemaphoreClient};

use super::acl;
use super::errors::kind_of;
use super::observer::until;
use super::server::{Server, unique_name};

const SLOTS: usize = 16_384;
/// After this time without a reply, in ms, a node counts as failed.
const NODE_TIMEOUT: &str = "1000";
/// After this time, a requested failover no longer happens.
const GIVEN_UP: Duration = Duration::from_secs(6);

/// A private cluster of one test: primaries with equal shares of the slots, and optionally a
/// replica for each. Nodes are numbered; replicas come after all primaries.
pub struct Cluster {
    pub nodes: Vec<Server>,
}

impl Cluster {
    /// Starts a cluster. Servers before 7.0 have no sharded channels. For such a server, checks the
    /// error of connecting and returns `None`.
    pub async fn start(primaries: usize, with_replicas: bool) -> Option<Self> {
        let cluster = Self::form(primaries, with_replicas, &[]);
        // On a server before 7.0, no user can get the rights for sharded channels, so the
        // administrator connects.
        if cluster.nodes[0].is_older_than_7() {
            let refused =
                SemaphoreClient::builder().connect_cluster(cluster.admin_urls()).await.unwrap_err();
            assert_eq!(kind_of(&refused), Some(ConnectErrorKind::TooOld), "{refused}");
            assert!(
                refused.to_string().contains("for a cluster, use Redis 7.0 or newer"),
                "{refused}"
            );
            return None;
        }
        Some(cluster)
    }

    /// Forms a cluster of nodes with these additional options. Servers before 7.0 can form a
    /// cluster, too.
    pub fn form(primaries: usize, with_replicas: bool, options: &[&str]) -> Self {
        let replicas = if with_replicas { primaries } else { 0 };
        let nodes: Vec<Server> = (0..primaries + replicas).map(|_| start_node(options)).collect();
        let cluster = Self { nodes };
        for node in 0..primaries {
            let share = SLOTS.div_ceil(primaries);
            let slots = node * share..SLOTS.min((node + 1) * share);
            let mut add = redis::cmd("CLUSTER");
            add.arg("ADDSLOTS").arg(slots.collect::<Vec<_>>());
            add.exec(&mut cluster.connect(node)).unwrap();
        }
        for node in 0..primaries + replicas {
            cluster.run::<()>(node, &["SET-CONFIG-EPOCH", &(node + 1).to_string()]);
        }
        cluster.introduce_nodes();
        for node in primaries..primaries + replicas {
            let id: String = cluster.run(node - primaries, &["MYID"]);
            cluster.run::<()>(node, &["REPLICATE", &id]);
        }
        cluster.all_say("the cluster is complete", |cluster, node| {
            let nodes: String = cluster.run(node, &["NODES"]);
            cluster.info(node).contains("cluster_state:ok")
                && nodes.matches("slave").count() == replicas
                && (node < primaries || cluster.is_in_sync(node))
        });
        cluster
    }

    /// Adds a node, which has no slots and has never seen a script.
    pub fn add_node(&mut self) -> usize {
        self.nodes.push(start_node(&[]));
        self.introduce_nodes();
        self.all_say("the cluster is well", |cluster, node| {
            cluster.info(node).contains("cluster_state:ok")
        });
        self.nodes.len() - 1
    }

    /// Waits until all nodes know each other. A node that does not respond to MEET within
    /// `NODE_TIMEOUT` is forgotten, so MEET is repeated. Each node sends MEET itself, because gossip
    /// can fail in the same way. Nodes are compared by ID, because a node can announce another port.
    /// During a handshake, a node has another ID.
    fn introduce_nodes(&self) {
        let ids: Vec<String> =
            (0..self.nodes.len()).map(|node| self.run(node, &["MYID"])).collect();
        self.all_say("all nodes are known", |cluster, node| {
            let known: String = cluster.run(node, &["NODES"]);
            if known.contains("handshake") {
                return false;
            }
            let nodes = ids.iter().zip(&cluster.nodes);
            let unknown: Vec<_> = nodes.filter(|(id, _)| !known.contains(*id)).collect();
            for (_, other) in &unknown {
                cluster.run::<()>(node, &["MEET", "127.0.0.1", &other.port.to_string()]);
            }
            unknown.is_empty()
        });
    }

    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    fn admin_urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::admin_url).collect()
    }

    pub fn connect(&self, node: usize) -> Connection {
        self.nodes[node].connect()
    }

    /// Configures each node to serve its slots even if some other slots have no node.
    pub fn allow_gaps(&self) {
        let coverage = ["SET", "cluster-require-full-coverage", "no"];
        for node in &self.nodes {
            redis::cmd("CONFIG").arg(&coverage).exec(&mut node.connect()).unwrap();
        }
    }

    pub fn run<T: FromRedisValue>(&self, node: usize, arguments: &[&str]) -> T {
        redis::cmd("CLUSTER").arg(arguments).query(&mut self.connect(node)).unwrap()
    }

    fn info(&self, node: usize) -> String {
        self.run(node, &["INFO"])
    }

    fn is_in_sync(&self, node: usize) -> bool {
        let info: String =
            redis::cmd("INFO").arg("replication").query(&mut self.connect(node)).unwrap();
        info.contains("master_link_status:up")
    }

    /// Waits until `says` returns true for all running nodes.
    pub fn all_say(&self, what: &str, says: impl Fn(&Self, usize) -> bool) {
        let running = (0..self.nodes.len()).filter(|node| self.nodes[*node].is_running());
        for node in running {
            until(&format!("node {node} says: {what}"), || says(self, node));
        }
    }

    /// Returns a name whose slot belongs to this node.
    pub fn name_at(&self, node: usize) -> String {
        let names = std::iter::repeat_with(unique_name);
        names.into_iter().find(|name| self.has(node, slot_of(self, name))).unwrap()
    }

    fn has(&self, node: usize, slot: u16) -> bool {
        self.says_that_has(node, node, slot)
    }

    /// Returns the primary that has the slot of this name. All nodes must be running.
    pub fn home_of(&self, name: &str) -> usize {
        let slot = slot_of(self, name);
        (0..self.nodes.len()).find(|node| self.has(*node, slot)).unwrap()
    }

    /// Waits until all nodes are ready and agree on the primaries of these names.
    pub fn agrees(&self, names: &[String]) {
        self.all_say("the cluster is well", |cluster, node| {
            cluster.info(node).contains("cluster_state:ok")
                && (cluster.is_primary(node) || cluster.is_in_sync(node))
        });
        for name in names {
            let slot = slot_of(self, name);
            self.all_say("where a slot is", |cluster, node| {
                cluster.says_that_has(node, cluster.home_of(name), slot)
            });
        }
    }

    fn says_that_has(&self, asked: usize, node: usize, slot: u16) -> bool {
        let port = i64::from(self.nodes[node].port);
        let ranges: Vec<Vec<Value>> = self.run(asked, &["SLOTS"]);
        ranges.iter().any(|range| {
            let integer = |value: &Value| redis::from_redis_value_ref::<i64>(value).unwrap();
            let Value::Array(primary) = &range[2] else { panic!("{range:?}") };
            (integer(&range[0])..=integer(&range[1])).contains(&slot.into())
                && integer(&primary[1]) == port
        })
    }

    /// Begins to move the slot of a semaphore, and moves the given keys.
    pub fn begin_to_move(&self, name: &str, from: usize, to: usize, keys: &[&str]) {
        let slot = slot_of(self, name).to_string();
        let (from_id, to_id): (String, String) =
            (self.run(from, &["MYID"]), self.run(to, &["MYID"]));
        self.run::<()>(to, &["SETSLOT", &slot, "IMPORTING", &from_id]);
        self.run::<()>(from, &["SETSLOT", &slot, "MIGRATING", &to_id]);
        for key in keys {
            let mut migrate = redis::cmd("MIGRATE");
            migrate.arg("127.0.0.1").arg(self.nodes[to].port).arg(format!("sem:{{{name}}}:{key}"));
            let _: String = migrate.arg(0).arg(10_000).query(&mut self.connect(from)).unwrap();
        }
    }

    /// Ends the move: the slot belongs to the new node.
    pub fn end_move(&self, name: &str, to: usize) {
        let slot = slot_of(self, name);
        let id: String = self.run(to, &["MYID"]);
        self.run::<()>(to, &["SETSLOT", &slot.to_string(), "NODE", &id]);
        let primaries: BTreeSet<usize> =
            (0..self.nodes.len()).filter(|node| self.is_primary(*node)).collect();
        for node in primaries {
            self.run::<()>(node, &["SETSLOT", &slot.to_string(), "NODE", &id]);
        }
    }

    pub fn move_slot(&self, name: &str, from: usize, to: usize) {
        self.begin_to_move(name, from, to, &["permits", "queue", "clients", "state"]);
        self.end_move(name, to);
    }

    pub fn is_primary(&self, node: usize) -> bool {
        let role: Vec<Value> = redis::cmd("ROLE").query(&mut self.connect(node)).unwrap();
        redis::from_redis_value_ref::<String>(&role[0]).unwrap() == "master"
    }

    /// Waits until a failover would lose nothing.
    pub fn is_in_step(&self, primary: usize, replica: usize) {
        let is_copied = || self.nodes[primary].is_copied_to(&self.nodes[replica]);
        until(&format!("node {replica} has all data"), is_copied);
    }

    /// Replaces a primary with its replica without loss. Soon after an earlier failover, the other
    /// nodes may refuse to vote. In that case, the replica gives up after five seconds, and the
    /// failover is requested again.
    pub fn fail_over_to(&self, replica: usize) {
        let mut asked: Option<Instant> = None;
        until(&format!("node {replica} takes over"), || {
            if !self.is_primary(replica) && asked.is_none_or(|at| at.elapsed() > GIVEN_UP) {
                let mut request = redis::cmd("CLUSTER");
                let response = request.arg("FAILOVER").exec(&mut self.connect(replica));
                assert!(response.is_ok() || self.is_primary(replica), "{response:?}");
                asked = Some(Instant::now());
            }
            self.is_primary(replica)
        });
        self.sees_promoted(replica);
    }

    /// Waits until this replica has replaced its primary.
    pub fn sees_promoted(&self, node: usize) {
        until(&format!("node {node} is promoted"), || {
            self.is_primary(node) && self.info(node).contains("cluster_state:ok")
        });
    }

    /// Waits until a former primary is a replica that has all data.
    pub fn sees_demoted(&self, node: usize) {
        until(&format!("node {node} is demoted"), || {
            !self.is_primary(node) && self.is_in_sync(node)
        });
    }
}

fn start_node(options: &[&str]) -> Server {
    let usual = ["--cluster-enabled", "yes", "--cluster-node-timeout", NODE_TIMEOUT];
    let quick = ["--repl-diskless-sync-delay", "0"];
    let mut node = Server::start_with(&[&usual[..], &quick, options].concat());
    if !node.is_older_than_7() {
        node.set_user(acl::cluster_rules());
    }
    node
}

fn slot_of(cluster: &Cluster, name: &str) -> u16 {
    cluster.run(0, &["KEYSLOT", name])
}
