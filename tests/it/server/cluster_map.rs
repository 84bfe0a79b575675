//! Tests that a client's map of the cluster stays correct while nodes fail, leave and move.

use std::thread;
use std::time::Duration;

use redis::Value;
use redis_semaphore::{ConnectErrorKind, Error, Semaphore, SemaphoreClient};

use crate::runtime::none::block_on;
use test_support::cluster::Cluster;
use test_support::errors::kind_of;
use test_support::observer::{eventually, in_time, until};
use test_support::server::{Server, unique_name};

/// Connects with the addresses of the first nodes only.
async fn connect(cluster: &Cluster, nodes: usize) -> SemaphoreClient {
    let builder = SemaphoreClient::builder().response_timeout(Duration::from_millis(500));
    builder.connect_cluster(cluster.urls().into_iter().take(nodes)).await.unwrap()
}

async fn use_once(semaphore: &Semaphore) {
    let permit = in_time("a permit", semaphore.acquire()).await.unwrap();
    permit.release().await.unwrap();
}

fn cut(cluster: &Cluster, node: usize) {
    let mut kill = redis::cmd("CLIENT");
    kill.arg(&["KILL", "USER", "jobs"]).exec(&mut cluster.connect(node)).unwrap();
}

/// The connections to two nodes are cut. The client does not notice, because it sends no calls to
/// these nodes. Later the client needs these nodes to find the new primary.
#[tokio::test]
async fn a_failover_is_followed_although_idle_connections_were_cut() {
    let Some(mut cluster) = Cluster::start(3, true).await else { return };
    let client = connect(&cluster, 3).await;
    let semaphore = client.semaphore(cluster.name_at(0)).limit(1).build().unwrap();
    use_once(&semaphore).await;
    for node in [1, 2] {
        cut(&cluster, node);
    }
    cluster.is_in_step(0, 3);
    cluster.nodes[0].kill();
    cluster.sees_promoted(3);
    use_once(&semaphore).await;
}

/// After the failovers, none of the nodes whose addresses the client was given still runs.
#[tokio::test]
async fn a_client_follows_failovers_of_all_primaries() {
    let Some(mut cluster) = Cluster::start(3, true).await else { return };
    // The cluster does not list replicas before they have received data.
    let before = connect(&cluster, 3).await;
    for node in 0..3 {
        use_once(&before.semaphore(cluster.name_at(node)).limit(1).build().unwrap()).await;
    }
    cluster.all_say("all replicas are listed", |cluster, node| {
        let ranges: Vec<Vec<Value>> = cluster.run(node, &["SLOTS"]);
        ranges.iter().all(|range| range.len() == 4)
    });
    let client = connect(&cluster, 3).await;
    let semaphore = client.semaphore(cluster.name_at(0)).limit(1).build().unwrap();
    use_once(&semaphore).await;
    for (primary, replica) in [(1, 4), (2, 5), (0, 3)] {
        cluster.is_in_step(primary, replica);
        cluster.nodes[primary].kill();
        cluster.sees_promoted(replica);
    }
    use_once(&semaphore).await;
}

#[tokio::test]
async fn the_cluster_map_is_read_regularly() {
    let Some(cluster) = Cluster::start(1, false).await else { return };
    let builder = SemaphoreClient::builder().heartbeat_timeout(Duration::from_millis(200));
    let _semaphores = builder.connect_cluster(cluster.urls()).await.unwrap();
    let count = async || cluster.nodes[0].calls("cluster|slots");
    let before = count().await;
    eventually("read regularly", count, |count| *count > before + 3).await;
}

#[tokio::test]
async fn a_semaphore_works_again_after_its_slot_had_no_node() {
    let Some(cluster) = Cluster::start(2, false).await else { return };
    let name = cluster.name_at(0);
    let client = connect(&cluster, 2).await;
    let semaphore = client.semaphore(&name).limit(1).build().unwrap();
    use_once(&semaphore).await;
    let slot = cluster.run::<u16>(0, &["KEYSLOT", &name]).to_string();
    cluster.allow_gaps();
    for node in 0..2 {
        cluster.run::<()>(node, &["DELSLOTS", &slot]);
    }
    // The client notices that the slot has no node, and removes the slot's former node from its
    // map.
    let tried = async || semaphore.try_acquire().await.map(drop);
    let refused = eventually("a slot without a node", tried, |tried| {
        tried.as_ref().is_err_and(|error| error.to_string().contains("no node of the cluster"))
    });
    let refused = refused.await.unwrap_err().to_string();
    let explains = |text: &str| {
        text.contains("no node of the cluster serves the slot of this semaphore")
            && text.contains("check CLUSTER INFO for failed nodes and uncovered slots")
    };
    assert!(explains(&refused), "{refused}");
    let waited = semaphore.acquire_timeout(Duration::from_secs(1)).await;
    let outage = match waited.unwrap_err() {
        Error::Timeout { outage, .. } => outage.unwrap(),
        other => panic!("{other}"),
    };
    assert!(explains(&outage), "{outage}");
    let diagnosis = in_time("a diagnosis", client.doctor()).await.unwrap().to_string();
    assert!(diagnosis.contains("1 of 16384 slots have no node"), "{diagnosis}");
    // A caller without a runtime gets an error, too, at any moment of the search for a node.
    let waiting = semaphore.clone();
    let outside = move || {
        for millis in (5..150).step_by(5) {
            let acquire = waiting.acquire_timeout(Duration::from_millis(millis));
            assert!(block_on(acquire).is_err());
        }
    };
    let outside = thread::spawn(outside);
    let ended = tokio::task::spawn_blocking(move || outside.join());
    assert!(ended.await.unwrap().is_ok());
    cluster.run::<()>(0, &["ADDSLOTS", &slot]);
    cluster.all_say("all slots have nodes", |cluster, node| {
        cluster.run::<String>(node, &["INFO"]).contains("cluster_slots_assigned:16384")
    });
    use_once(&semaphore).await;
}

/// The client's configuration still contains the address of a removed node, which has slots of
/// another cluster now.
#[tokio::test]
async fn a_client_ignores_a_former_node_that_belongs_to_another_cluster() {
    let Some(mut cluster) = Cluster::start(1, false).await else { return };
    let new = cluster.add_node();
    let client = connect(&cluster, 2).await;
    let semaphore = client.semaphore(unique_name()).limit(1).build().unwrap();
    let held = semaphore.acquire().await.unwrap();
    let id: String = cluster.run(new, &["MYID"]);
    cluster.run::<()>(0, &["FORGET", &id]);
    cluster.run::<()>(new, &["RESET", "HARD"]);
    cluster.run::<()>(new, &["ADDSLOTSRANGE", "0", "16383"]);
    let state = async || cluster.run::<String>(new, &["INFO"]);
    eventually("a working cluster", state, |info| info.contains("cluster_state:ok")).await;
    for _ in 0..10 {
        // After the cut, the client looks up the slot's node again.
        cut(&cluster, 0);
        let tried = async || semaphore.try_acquire().await;
        let tried = eventually("a reply", tried, Result::is_ok).await.unwrap();
        assert!(tried.is_none(), "two clients hold the permit");
    }
    held.release().await.unwrap();
}

/// Slots are assigned after the nodes have started.
#[tokio::test]
async fn connecting_waits_until_a_new_cluster_has_slots() {
    let node = Server::start_with(&["--cluster-enabled", "yes"]);
    if node.is_older_than_7() {
        return;
    }
    let urls = [node.admin_url()];
    let refused = SemaphoreClient::builder().connect_cluster(&urls).await.unwrap_err();
    assert_eq!(kind_of(&refused), Some(ConnectErrorKind::NotReady), "{refused}");
    assert!(refused.to_string().contains("no node of the cluster has a slot yet"), "{refused}");
    assert!(refused.is_transient());
    let patient = SemaphoreClient::builder().connect_timeout(Duration::from_secs(120));
    let looks = node.calls("cluster|slots");
    let assigning = async {
        let attempts = async || node.calls("cluster|slots");
        eventually("attempts", attempts, |now| *now >= looks + 3).await;
        let mut assign = redis::cmd("CLUSTER");
        assign.arg("ADDSLOTSRANGE").arg(0).arg(16_383).exec(&mut node.connect()).unwrap();
    };
    let connecting = in_time("a connection", patient.connect_cluster(&urls));
    let (connected, ()) = tokio::join!(connecting, assigning);
    use_once(&connected.unwrap().semaphore(unique_name()).limit(1).build().unwrap()).await;
}

/// Errors mark addresses that only the cluster announces. Otherwise, users would search their
/// configuration for these addresses.
#[tokio::test]
async fn errors_mark_addresses_that_only_the_cluster_names() {
    let Some(mut cluster) = Cluster::start(2, false).await else { return };
    let client = connect(&cluster, 1).await;
    let [own, other] = [0, 1].map(|node| cluster.nodes[node].port);
    let semaphore = client.semaphore(cluster.name_at(1)).limit(1).build().unwrap();
    cluster.nodes[1].kill();
    let failed = semaphore.try_acquire().await.unwrap_err();
    let Error::Unavailable { server, .. } = &failed else { panic!("{failed}") };
    assert_eq!(*server, format!("127.0.0.1:{other} (an address that the cluster announces)"));

    // Nothing listens there.
    let announce = ["SET", "cluster-announce-ip", "127.0.0.2"];
    redis::cmd("CONFIG").arg(&announce).exec(&mut cluster.connect(0)).unwrap();
    let announced = || format!("{:?}", cluster.run::<Value>(0, &["SLOTS"])).contains("127.0.0.2");
    until("the address is announced", announced);
    let nodes = [cluster.nodes[0].url()];
    let failed = SemaphoreClient::builder().connect_cluster(nodes).await.unwrap_err();
    let Error::Connect { address, .. } = &failed else { panic!("{failed}") };
    assert!(address.ends_with(" (an address that the cluster announces)"), "{address}");
    assert!(!address.contains(&format!("127.0.0.1:{own}")), "{address}");
}
