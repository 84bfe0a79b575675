//! Tests of permits that are returned only after replicas have acknowledged them.

use std::time::Duration;

use futures_util::future::join_all;
use nix::sys::signal::Signal;
use redis_semaphore::{Error, Semaphore, SemaphoreClient};

use test_support::cluster::Cluster;
use test_support::observer::{Observer, eventually, in_time};
use test_support::replicated::Pair;
use test_support::server::{Server, shared_url, unique_name};

const NAME: &str = "vault";
/// A duration that is longer than any test.
const LONG: Duration = Duration::from_secs(300);

fn build(client: &SemaphoreClient, limit: u32, replicas: u32, within: Duration) -> Semaphore {
    let builder = client.semaphore(NAME).limit(limit).lease(LONG * 2);
    builder.acknowledged_by(replicas, within).build().unwrap()
}

fn knows(server: &Server, name: &str, id: &str) -> bool {
    let mut score = redis::cmd("ZSCORE");
    score.arg(format!("sem:{{{name}}}:permits")).arg(id);
    let mut connection = server.connect();
    // Replicas in a cluster require this command, which other servers reject.
    let _: Result<(), _> = redis::cmd("READONLY").exec(&mut connection);
    score.query::<Option<f64>>(&mut connection).unwrap().is_some()
}

#[tokio::test]
async fn a_permit_is_returned_only_after_a_replica_has_it() {
    let pair = Pair::start();
    pair.servers[0].grant("+wait");
    let client = SemaphoreClient::connect(&pair.urls()[0]).await.unwrap();
    let semaphore = build(&client, 1, 1, LONG);
    for _ in 0..50 {
        let permit = semaphore.try_acquire().await.unwrap().unwrap();
        assert!(knows(&pair.servers[1], NAME, permit.id()));
        let waiting = tokio::spawn({
            let semaphore = semaphore.clone();
            async move { semaphore.acquire().await }
        });
        let queued = async || semaphore.inspect().await.unwrap().queued;
        eventually("it waits", queued, |queued| *queued == 1).await;
        permit.release().await.unwrap();
        let handed_off = in_time("its turn", waiting).await.unwrap().unwrap();
        assert!(knows(&pair.servers[1], NAME, handed_off.id()));
        handed_off.release().await.unwrap();
    }
}

#[tokio::test]
async fn an_acquire_without_enough_replicas_fails_and_keeps_no_permit() {
    let pair = Pair::start();
    pair.servers[0].grant("+wait");
    let url = &pair.urls()[0];
    let client = SemaphoreClient::connect(url).await.unwrap();
    let observer = Observer::new(url, NAME, 3).await;
    let within = Duration::from_secs(2);
    let too_few = |response: Result<_, Error>, found| match response {
        Err(Error::NotAcknowledged { semaphore, replicas, .. }) => {
            assert_eq!((semaphore.as_str(), replicas), (NAME, found));
        }
        other => panic!("{:?}", other.map(|_: ()| ())),
    };
    let two = build(&client, 3, 2, within);
    too_few(two.acquire().await.map(drop), 1);
    observer.sees(0, 0).await;
    too_few(two.try_acquire_many(3).await.map(drop), 1);
    observer.sees(0, 0).await;

    pair.servers[1].signal(Signal::SIGSTOP);
    let one = build(&client, 3, 1, within);
    too_few(one.acquire().await.map(drop), 0);
    observer.sees(0, 0).await;
    pair.servers[1].signal(Signal::SIGCONT);
    let acquire = async || one.acquire().await;
    let permit = eventually("the replica is back", acquire, Result::is_ok).await.unwrap();
    permit.release().await.unwrap();
}

#[tokio::test]
async fn waiting_for_a_replica_does_not_block_other_semaphores() {
    let pair = Pair::start();
    pair.servers[0].grant("+wait");
    let client = SemaphoreClient::connect(&pair.urls()[0]).await.unwrap();
    let careful = build(&client, 1, 1, LONG);
    drop(careful.acquire().await.unwrap());
    pair.servers[1].signal(Signal::SIGSTOP);
    let held_up = tokio::spawn(async move { careful.acquire().await });
    let other = client.semaphore("other").limit(1).build().unwrap();
    for _ in 0..100 {
        let permit = in_time("a permit of another semaphore", other.acquire()).await.unwrap();
        in_time("its release", permit.release()).await.unwrap();
    }
    // Another semaphore with acknowledgments uses a connection of its own.
    let careful = client.semaphore("careful").limit(1).acknowledged_by(1, Duration::from_millis(9));
    let refused = in_time("a reply", careful.build().unwrap().acquire()).await;
    assert!(matches!(refused, Err(Error::NotAcknowledged { .. })), "{refused:?}");
    assert!(!held_up.is_finished());
    pair.servers[1].signal(Signal::SIGCONT);
    let permit = in_time("the permit", held_up).await.unwrap().unwrap();
    permit.release().await.unwrap();
}

#[tokio::test]
async fn many_acquires_share_a_few_wait_commands() {
    const PERMITS: u32 = 200;
    let pair = Pair::start();
    pair.servers[0].grant("+wait");
    let client = SemaphoreClient::connect(&pair.urls()[0]).await.unwrap();
    let semaphore = build(&client, PERMITS, 1, LONG);
    let permits = join_all((0..PERMITS).map(|_| semaphore.acquire())).await;
    assert!(permits.iter().all(Result::is_ok));
    let waits = pair.servers[0].calls("wait");
    assert!((1..=4).contains(&waits), "{waits}");
}

/// A refresh in the millisecond of the grant writes nothing, and the `WAIT` of Valkey waits only
/// for writes of its own connection. A stopped replica must still not be counted.
#[tokio::test]
async fn a_replica_that_has_stopped_is_never_counted() {
    let pair = Pair::start();
    pair.servers[0].grant("+wait");
    let client = SemaphoreClient::connect(&pair.urls()[0]).await.unwrap();
    let semaphore = build(&client, 1, 1, Duration::from_millis(5));
    let acquire = async || semaphore.acquire().await;
    let permit = eventually("the replica replies", acquire, Result::is_ok).await.unwrap();
    permit.release().await.unwrap();
    pair.servers[1].signal(Signal::SIGSTOP);
    for _ in 0..50 {
        let refused = in_time("a reply", semaphore.acquire()).await;
        assert!(matches!(refused, Err(Error::NotAcknowledged { replicas: 0, .. })), "{refused:?}");
    }
}

/// The server has granted the permit, but the acquire has not returned it yet. The shutdown ends
/// the acquire, and releases the permit.
#[tokio::test]
async fn shutdown_releases_a_permit_that_waits_for_acknowledgements() {
    let server = Server::start();
    server.grant("+wait");
    for waits in [true, false] {
        let client = SemaphoreClient::connect(&server.url()).await.unwrap();
        let semaphore = build(&client, 1, 1, Duration::from_secs(300));
        let observer = Observer::new(&server.url(), NAME, 1).await;
        let asking = tokio::spawn(async move {
            match waits {
                true => semaphore.acquire().await.map(drop),
                false => semaphore.try_acquire().await.map(drop),
            }
        });
        observer.sees(1, 0).await;
        client.shutdown().await;
        let ended = in_time("a reply", asking).await.unwrap();
        assert!(matches!(ended, Err(Error::Shutdown)), "{ended:?}");
        observer.sees(0, 0).await;
    }
}

#[tokio::test]
async fn an_acquire_that_waits_for_a_replica_follows_a_failover() {
    let pair = Pair::start();
    pair.servers.iter().for_each(|server| server.grant("+wait"));
    let builder = SemaphoreClient::builder().response_timeout(Duration::from_millis(500));
    let client = builder.connect_primary_of(pair.urls()).await.unwrap();
    let semaphore = build(&client, 1, 1, Duration::from_secs(20));
    drop(semaphore.acquire().await.unwrap());
    pair.is_in_step();
    pair.servers[1].signal(Signal::SIGSTOP);
    let waiting = tokio::spawn(async move { semaphore.acquire().await });
    let blocked = async || {
        let list = redis::cmd("CLIENT").arg("LIST").query::<String>(&mut pair.connect(0)).unwrap();
        list.lines().any(|client| client.contains("cmd=wait"))
    };
    eventually("it waits for the replica", blocked, |blocked| *blocked).await;
    let mut demote = redis::cmd("REPLICAOF");
    demote.arg("127.0.0.1").arg(pair.servers[1].port).exec(&mut pair.connect(0)).unwrap();
    pair.servers[1].signal(Signal::SIGCONT);
    pair.promote(1);
    pair.demote(0, 1);
    let permit = in_time("the permit", waiting).await.unwrap().unwrap();
    permit.release().await.unwrap();
}

#[tokio::test]
async fn acknowledgements_come_from_the_replicas_of_the_semaphores_node() {
    let Some(mut cluster) = Cluster::start(3, true).await else { return };
    cluster.nodes.iter().for_each(|node| node.grant("+wait"));
    let name = cluster.name_at(1);
    let client = SemaphoreClient::builder().connect_cluster(cluster.urls()).await.unwrap();
    let semaphore = client.semaphore(&name).limit(3).acknowledged_by(1, Duration::from_secs(9));
    let semaphore = semaphore.build().unwrap();
    let first = semaphore.acquire().await.unwrap();
    assert!(knows(&cluster.nodes[4], &name, first.id()));
    // The promoted node has the permit, because the replica had acknowledged it.
    cluster.nodes[1].kill();
    cluster.sees_promoted(4);
    let refresh = async || first.refresh().await;
    eventually("a reply", refresh, Result::is_ok).await.unwrap();
    // The promoted node has no replica.
    let hasty = client.semaphore(&name).limit(3).acknowledged_by(1, Duration::from_millis(20));
    let refused = hasty.build().unwrap().acquire().await;
    assert!(matches!(refused, Err(Error::NotAcknowledged { replicas: 0, .. })), "{refused:?}");
}

#[tokio::test]
async fn a_missing_wait_right_is_reported_with_the_name_of_the_call() {
    let server = Server::start();
    let client = SemaphoreClient::connect(&server.url()).await.unwrap();
    let semaphore = build(&client, 2, 1, LONG);
    for (called, refused) in [
        ("acquire", semaphore.acquire().await.map(drop).unwrap_err()),
        ("try_acquire", semaphore.try_acquire().await.map(drop).unwrap_err()),
    ] {
        let Error::Rejected { operation, source, .. } = &refused else { panic!("{refused:?}") };
        assert_eq!((*operation, source.code()), (called, Some("NOPERM")), "{refused}");
    }
}

#[tokio::test]
async fn invalid_acknowledgement_settings_are_rejected() {
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let lease = Duration::from_secs(2);
    for (replicas, within) in [
        (0, Duration::from_millis(10)),
        (1, Duration::ZERO),
        (1, Duration::from_micros(999)),
        (1, lease / 2 + Duration::from_millis(1)),
        (1, Duration::MAX),
    ] {
        let builder = client.semaphore(unique_name()).limit(1).lease(lease);
        let refused = builder.acknowledged_by(replicas, within).build().unwrap_err();
        assert!(matches!(refused, Error::Invalid { what: "acknowledged_by", .. }), "{refused}");
    }
    // With these times, a permit could already be lost when it is returned.
    let builder = client.semaphore(unique_name()).limit(1).max_hold(lease);
    let refused = builder.acknowledged_by(1, lease).build().unwrap_err();
    assert!(matches!(refused, Error::Invalid { what: "acknowledged_by", .. }), "{refused}");
}
