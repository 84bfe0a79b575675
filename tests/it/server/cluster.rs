//! Tests with a cluster. Semaphores follow their slots. The failure of one node does not affect the
//! semaphores of other nodes.

use std::time::Duration;

use nix::sys::signal::Signal;
use redis::{ErrorKind, ServerErrorKind};
use redis_semaphore::{ConnectErrorKind, Error, Permit, Semaphore, SemaphoreClient};
use tokio::task::JoinHandle;

use test_support::cluster::Cluster;
use test_support::errors::kind_of;
use test_support::observer::{Observer, eventually, in_time};
use test_support::server::{Server, unique_name};

/// The timeout is so long that only messages and new subscriptions can end a wait in time.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(600);

async fn connect(cluster: &Cluster) -> SemaphoreClient {
    connect_with(cluster, HEARTBEAT_TIMEOUT).await
}

async fn connect_with(cluster: &Cluster, heartbeat_timeout: Duration) -> SemaphoreClient {
    let builder = SemaphoreClient::builder().heartbeat_timeout(heartbeat_timeout);
    let builder = builder.response_timeout(Duration::from_millis(500));
    builder.connect_cluster(cluster.urls()).await.unwrap()
}

fn build(client: &SemaphoreClient, name: &str) -> Semaphore {
    client.semaphore(name).limit(1).build().unwrap()
}

/// One client holds the only permit of a semaphore, and another client waits for it.
struct Scene {
    name: String,
    holder: Permit,
    waiting: JoinHandle<Result<Permit, Error>>,
    observer: Observer,
}

impl Scene {
    async fn set(cluster: &Cluster, name: &str) -> Self {
        Self::set_with(cluster, name, HEARTBEAT_TIMEOUT).await
    }

    async fn set_with(cluster: &Cluster, name: &str, heartbeat_timeout: Duration) -> Self {
        let holder = build(&connect(cluster).await, name).acquire().await.unwrap();
        let waiter = build(&connect_with(cluster, heartbeat_timeout).await, name);
        let waiting = tokio::spawn(async move { waiter.acquire().await });
        let observer = Observer::of(build(&connect(cluster).await, name));
        observer.sees(1, 1).await;
        Self { name: name.to_owned(), holder, waiting, observer }
    }

    /// Checks that the permit is still held, and is handed off when it is released.
    async fn ends_well(self) {
        let refresh = async || self.holder.refresh().await;
        let refreshed = eventually("a refresh that succeeds", refresh, Result::is_ok).await;
        refreshed.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let token = self.holder.fencing_token();
        in_time("the release", self.holder.release()).await.unwrap();
        let next = in_time("the waiter's turn", self.waiting).await.unwrap().unwrap();
        assert!(next.fencing_token() > token);
        in_time("the release", next.release()).await.unwrap();
        self.observer.sees(0, 0).await;
    }
}

/// Semaphores of one client that have the same name share a channel. When one semaphore is dropped,
/// the subscription may end although the next semaphore already needs the channel.
#[tokio::test]
async fn a_rebuilt_semaphore_receives_its_grant_messages() {
    let Some(cluster) = Cluster::start(1, false).await else { return };
    let name = unique_name();
    let other = build(&connect(&cluster).await, &name);
    let client = connect(&cluster).await;
    for turn in 0..20 {
        let holder = other.acquire().await.unwrap();
        let waits = |semaphore: Semaphore| tokio::spawn(semaphore.request().acquire());
        let mut waiting = vec![waits(build(&client, &name))];
        if turn % 2 == 0 {
            waiting.push(waits(build(&client, &name)));
        }
        let queued = async || other.inspect().await.unwrap().queued;
        eventually("all wait", queued, |queued| *queued == waiting.len() as u64).await;
        holder.release().await.unwrap();
        let turns = waiting.into_iter().map(async |waits| {
            let permit = in_time("its turn", waits).await.unwrap().unwrap();
            permit.release().await.unwrap();
        });
        futures_util::future::join_all(turns).await;
    }
}

#[tokio::test]
async fn semaphores_on_all_nodes_hand_off_their_permits() {
    let Some(cluster) = Cluster::start(3, false).await else { return };
    for node in 0..3 {
        Scene::set(&cluster, &cluster.name_at(node)).await.ends_well().await;
    }
}

#[tokio::test]
async fn every_call_reaches_its_node() {
    let Some(cluster) = Cluster::start(3, false).await else { return };
    // One node is enough to find the others.
    let client = SemaphoreClient::builder().connect_cluster([&*cluster.urls()[2]]).await.unwrap();
    for node in 0..3 {
        let semaphore = build(&client, &cluster.name_at(node));
        assert_eq!(semaphore.set_limit(5).await.unwrap(), 1);
        let permit = semaphore.try_acquire_many(2).await.unwrap().unwrap();
        assert_eq!(semaphore.available_permits().await.unwrap(), 3);
        assert_eq!(semaphore.inspect().await.unwrap().held, 2);
        let permit = semaphore.adopt(permit.detach()).await.unwrap();
        assert_eq!(semaphore.inspect().await.unwrap().holders[0].id, permit.id());
        permit.forget().await.unwrap();
        let revoked = semaphore.acquire().await.unwrap();
        semaphore.revoke(revoked.id()).await.unwrap();
        assert!(matches!(revoked.release().await, Err(Error::Lost { .. })));
        assert_eq!(semaphore.add_permits(1).await.unwrap(), 4);
        assert_eq!(semaphore.clear_limit().await.unwrap(), 1);
    }
}

/// The slot also moves to a node that has never received a script and that no client knows yet.
#[tokio::test]
async fn permits_and_waits_survive_the_move_of_their_slot() {
    let Some(mut cluster) = Cluster::start(2, false).await else { return };
    for to_new in [false, true] {
        let name = cluster.name_at(0);
        let scene = Scene::set(&cluster, &name).await;
        let to = if to_new { cluster.add_node() } else { 1 };
        cluster.move_slot(&name, 0, to);
        scene.ends_well().await;
    }
}

/// The keys are already on the new node, but the slot is still on the old node.
#[tokio::test]
async fn calls_follow_keys_that_have_moved_before_their_slot() {
    let Some(cluster) = Cluster::start(2, false).await else { return };
    let name = cluster.name_at(0);
    let scene = Scene::set(&cluster, &name).await;
    cluster.begin_to_move(&name, 0, 1, &["permits", "queue", "clients", "state"]);
    in_time("a refresh", scene.holder.refresh()).await.unwrap();
    assert_eq!(scene.observer.look().await.queued, 1);
    cluster.end_move(&name, 1);
    scene.ends_well().await;
}

/// All keys are on the node when the call arrives, but the call empties one of the keys. The node
/// considers that key as moved, and aborts a script that accesses the key again.
#[tokio::test]
async fn a_release_of_the_last_permit_completes_while_its_slot_begins_to_move() {
    let Some(cluster) = Cluster::start(2, false).await else { return };
    let name = cluster.name_at(0);
    let semaphore = connect(&cluster).await.semaphore(&*name).limit(2).build().unwrap();
    let holder = semaphore.acquire().await.unwrap();
    let another = connect(&cluster).await.semaphore(&*name).limit(2).build().unwrap();
    let waiting = tokio::spawn(async move { another.acquire_many(2).await });
    Observer::of(semaphore.clone()).sees(1, 1).await;
    // The waiter's request does not fit, even when all permits are free.
    semaphore.set_limit(1).await.unwrap();
    cluster.begin_to_move(&name, 0, 1, &[]);
    in_time("the release", holder.release()).await.unwrap();
    cluster.move_slot(&name, 0, 1);
    semaphore.clear_limit().await.unwrap();
    let next = in_time("the waiter's turn", waiting).await.unwrap().unwrap();
    in_time("the release", next.release()).await.unwrap();
}

/// One script removes the last permit and adds another permit.
#[tokio::test]
async fn a_heavy_permit_is_handed_off_while_its_slot_begins_to_move() {
    let Some(cluster) = Cluster::start(2, false).await else { return };
    let name = cluster.name_at(0);
    let build = async || connect(&cluster).await.semaphore(&*name).limit(2).build().unwrap();
    let (semaphore, another) = (build().await, build().await);
    let holder = semaphore.acquire_many(2).await.unwrap();
    let waiting = tokio::spawn({
        let another = another.clone();
        async move { another.acquire_many(2).await }
    });
    let observer = Observer::of(semaphore);
    observer.sees(2, 1).await;
    cluster.begin_to_move(&name, 0, 1, &[]);
    in_time("the release", holder.release()).await.unwrap();
    let next = in_time("the waiter's turn", waiting).await.unwrap().unwrap();
    cluster.move_slot(&name, 0, 1);
    assert_eq!(observer.sees(2, 0).await.holders[0].id, next.id());
    in_time("the release", next.release()).await.unwrap();
    let all = in_time("the whole limit", another.acquire_many(2)).await.unwrap();
    all.release().await.unwrap();
}

/// A cluster rejects calls whose keys are on both nodes.
#[tokio::test]
async fn a_call_is_retried_while_the_keys_of_its_slot_are_on_two_nodes() {
    let Some(cluster) = Cluster::start(2, false).await else { return };
    let name = cluster.name_at(0);
    let scene = Scene::set(&cluster, &name).await;
    cluster.begin_to_move(&name, 0, 1, &["permits", "queue"]);
    let impatient = build(&connect(&cluster).await, &name);
    let refused = impatient.try_acquire().await.unwrap_err();
    let Error::Unavailable { source, .. } = &refused else { panic!("{refused}") };
    assert_eq!(source.kind(), ErrorKind::Server(ServerErrorKind::TryAgain), "{source}");
    cluster.begin_to_move(&name, 0, 1, &["clients", "state"]);
    cluster.end_move(&name, 1);
    scene.ends_well().await;
}

#[tokio::test]
async fn permits_and_waits_survive_the_death_of_a_cluster_primary() {
    let Some(mut cluster) = Cluster::start(3, true).await else { return };
    let name = cluster.name_at(1);
    let scene = Scene::set(&cluster, &name).await;
    cluster.is_in_step(1, 4);
    cluster.nodes[1].kill();
    cluster.sees_promoted(4);
    scene.ends_well().await;
}

/// The node does not reply, but its connections stay open, so a client finds out only with a
/// heartbeat.
#[tokio::test]
async fn permits_and_waits_survive_a_silent_cluster_primary() {
    let Some(cluster) = Cluster::start(3, true).await else { return };
    let name = cluster.name_at(1);
    let scene = Scene::set_with(&cluster, &name, Duration::from_secs(3)).await;
    cluster.is_in_step(1, 4);
    cluster.nodes[1].signal(Signal::SIGSTOP);
    cluster.sees_promoted(4);
    scene.ends_well().await;
}

#[tokio::test]
async fn permits_and_waits_survive_a_planned_cluster_failover() {
    let Some(cluster) = Cluster::start(3, true).await else { return };
    let name = cluster.name_at(1);
    let scene = Scene::set(&cluster, &name).await;
    cluster.is_in_step(1, 4);
    cluster.fail_over_to(4);
    scene.ends_well().await;
}

#[tokio::test]
async fn a_silent_node_does_not_block_semaphores_of_other_nodes() {
    let Some(cluster) = Cluster::start(3, false).await else { return };
    // The timeout is longer than the test may take. If a call to another node waited for the silent
    // node, the test would fail.
    let builder = SemaphoreClient::builder().response_timeout(Duration::from_secs(120));
    let client = builder.connect_cluster(cluster.urls()).await.unwrap();
    let [there, here] = [1, 2].map(|node| build(&client, &cluster.name_at(node)));
    drop(there.acquire().await.unwrap());
    // If the test takes long, the other nodes consider the silent node failed. The other nodes must
    // still serve their own slots.
    cluster.allow_gaps();
    cluster.nodes[1].signal(Signal::SIGSTOP);
    let held_up = tokio::spawn(async move { there.acquire().await });
    for _ in 0..100 {
        let permit = in_time("a permit of another node", here.acquire()).await.unwrap();
        in_time("its release", permit.release()).await.unwrap();
    }
    // This semaphore's name was never used before, so the client also has to subscribe.
    let another = build(&client, &cluster.name_at(0));
    in_time("a permit", another.acquire()).await.unwrap().release().await.unwrap();
    assert!(!held_up.is_finished());
    cluster.nodes[1].signal(Signal::SIGCONT);
    in_time("the late permit", held_up).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn connecting_does_not_wait_for_a_silent_node() {
    let Some(cluster) = Cluster::start(3, false).await else { return };
    cluster.allow_gaps();
    cluster.nodes[1].signal(Signal::SIGSTOP);
    // The timeout is longer than the test may take.
    let builder = SemaphoreClient::builder().response_timeout(Duration::from_secs(120));
    let client = in_time("a client", builder.connect_cluster(cluster.urls())).await.unwrap();
    let here = build(&client, &cluster.name_at(2));
    in_time("a permit", here.acquire()).await.unwrap().release().await.unwrap();
    cluster.nodes[1].signal(Signal::SIGCONT);
}

#[tokio::test]
async fn channels_end_with_their_semaphores() {
    let Some(cluster) = Cluster::start(1, false).await else { return };
    let client = connect(&cluster).await;
    let count = async || -> i64 {
        let channels: Vec<String> =
            redis::cmd("PUBSUB").arg("SHARDCHANNELS").query(&mut cluster.connect(0)).unwrap();
        channels.len() as i64
    };
    let several: Vec<Semaphore> = (0..20).map(|_| build(&client, &unique_name())).collect();
    for semaphore in &several {
        drop(semaphore.try_acquire().await.unwrap());
    }
    assert_eq!(count().await, 0, "`try_acquire` needs no channel");
    for semaphore in &several {
        drop(semaphore.acquire().await.unwrap());
    }
    assert_eq!(count().await, 20, "one channel for each semaphore");
    let last = several.into_iter().next_back().unwrap();
    eventually("only one is left", count, |count| *count == 1).await;
    last.acquire().await.unwrap().release().await.unwrap();
}

/// A client cannot have missed a message of a new channel, so it sends no request again.
#[tokio::test]
async fn a_new_subscription_does_not_repeat_waiting_requests() {
    let Some(cluster) = Cluster::start(1, false).await else { return };
    // With this response timeout, no call is sent again.
    let builder = SemaphoreClient::builder()
        .heartbeat_timeout(HEARTBEAT_TIMEOUT)
        .response_timeout(HEARTBEAT_TIMEOUT);
    let client = builder.connect_cluster(cluster.urls()).await.unwrap();
    let build =
        || client.semaphore(unique_name()).limit(1).lease(HEARTBEAT_TIMEOUT).build().unwrap();
    let semaphore = build();
    let holder = semaphore.acquire().await.unwrap();
    let waiting = tokio::spawn(semaphore.request().acquire());
    Observer::of(semaphore.clone()).sees(1, 1).await;
    // The first release over a connection contains the script's text.
    let calls = || cluster.nodes[0].calls("evalsha") + cluster.nodes[0].calls("eval");
    let before = calls();
    for _ in 0..20 {
        build().acquire().await.unwrap().release().await.unwrap();
    }
    assert_eq!(calls() - before, 40);
    holder.release().await.unwrap();
    in_time("its turn", waiting).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn connecting_reports_a_cluster_mismatch_and_invalid_node_addresses() {
    let Some(cluster) = Cluster::start(1, false).await else { return };
    let refused = SemaphoreClient::connect(&cluster.urls()[0]).await.unwrap_err();
    assert_eq!(kind_of(&refused), Some(ConnectErrorKind::Cluster), "{refused}");
    assert!(refused.to_string().contains("connect to it as a cluster"), "{refused}");

    let single = Server::start();
    let refused =
        SemaphoreClient::builder().connect_cluster([single.admin_url()]).await.unwrap_err();
    assert_eq!(kind_of(&refused), Some(ConnectErrorKind::Cluster), "{refused}");
    assert!(
        refused
            .to_string()
            .contains("the server is not a cluster node: connect to it as a single server"),
        "{refused}"
    );

    let nodes: [&str; 0] = [];
    let refused = SemaphoreClient::builder().connect_cluster(nodes).await.unwrap_err();
    assert!(matches!(refused, Error::Invalid { what: "nodes", .. }), "{refused}");
    for node in ["redis+unix:///nowhere", "redis://127.0.0.1/x", "no url"] {
        let refused = SemaphoreClient::builder().connect_cluster([node]).await.unwrap_err();
        assert!(matches!(refused, Error::Invalid { what: "nodes", .. }), "{refused}");
    }
    let refused =
        SemaphoreClient::builder().connect_cluster(["redis://127.0.0.1:1/"]).await.unwrap_err();
    let Error::Connect { address, .. } = &refused else { panic!("{refused}") };
    assert_eq!(address, "127.0.0.1:1");
}

/// Only the connection for one node's messages is cut, so the client has missed no messages of
/// other nodes. If thousands of semaphores sent retries to the other nodes, the result would be a
/// storm of calls.
#[tokio::test]
async fn requests_are_repeated_only_at_a_node_whose_subscription_was_cut() {
    let Some(cluster) = Cluster::start(2, false).await else { return };
    let client = connect(&cluster).await;
    let (mut held, mut there) = (Vec::new(), Vec::new());
    for node in 0..2 {
        let builder = client.semaphore(cluster.name_at(node)).limit(1).lease(HEARTBEAT_TIMEOUT);
        let semaphore = builder.build().unwrap();
        held.push(semaphore.acquire().await.unwrap());
        tokio::spawn(semaphore.request().acquire());
        let queued = async || semaphore.inspect().await.unwrap().queued;
        eventually("it waits", queued, |queued| *queued == 1).await;
        there.push(semaphore);
    }
    let calls = |node: usize| -> u64 { cluster.nodes[node].calls("evalsha") };
    let before = [calls(0), calls(1)];
    let kill = ["KILL", "TYPE", "pubsub"];
    redis::cmd("CLIENT").arg(&kill).exec(&mut cluster.connect(0)).unwrap();
    eventually("a request is sent again", async || calls(0), |now| *now > before[0]).await;
    // If the client also sent requests again to this node, they would arrive before this call.
    there[1].inspect().await.unwrap();
    assert_eq!(calls(1) - before[1], 1);
}
