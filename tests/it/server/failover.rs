//! Tests with a primary and a replica, with and without Sentinel. Clients follow the primary.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use redis_semaphore::{
    ConnectErrorKind, Error, Permit, Semaphore, SemaphoreClient, SemaphoreClientBuilder,
};
use tokio::task::JoinHandle;

use test_support::observer::{Observer, eventually, in_time, until};
use test_support::proxy::Proxy;
use test_support::replicated::{Pair, Sentinels};
use test_support::server::Server;

/// The timeout is so long that only messages and new subscriptions can end a wait in time.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(600);
/// The timeout in tests of failures that a client detects only with a heartbeat.
const SHORT_HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(3);
/// In tests in which a server fails, sentinels consider a silent server dead after this time.
const SECOND: Duration = Duration::from_secs(1);

fn builder(heartbeat_timeout: Duration) -> SemaphoreClientBuilder {
    SemaphoreClient::builder()
        .heartbeat_timeout(heartbeat_timeout)
        .response_timeout(Duration::from_millis(500))
}

async fn by_sentinel(sentinels: &Sentinels, heartbeat_timeout: Duration) -> SemaphoreClient {
    builder(heartbeat_timeout).connect_sentinel(sentinels.client()).await.unwrap()
}

/// Connects with both addresses, with the replica first.
async fn by_asking(pair: &Pair) -> SemaphoreClient {
    let [primary, replica] = pair.urls();
    builder(SHORT_HEARTBEAT_TIMEOUT).connect_primary_of([replica, primary]).await.unwrap()
}

fn build(client: &SemaphoreClient) -> Semaphore {
    // The lease is long, because a failover takes time on a busy machine.
    client.semaphore("printer").limit(1).lease(Duration::from_secs(600)).build().unwrap()
}

/// One client holds the only permit, and another client waits for it.
struct Scene {
    holder: Permit,
    waiting: JoinHandle<Result<Permit, Error>>,
    observer: Observer,
}

impl Scene {
    async fn set(clients: [SemaphoreClient; 3]) -> Self {
        let [holder, waiter, observer] = clients;
        let holder = build(&holder).acquire().await.unwrap();
        let waiter = build(&waiter);
        let waiting = tokio::spawn(async move { waiter.acquire().await });
        let observer = Observer::of(build(&observer));
        observer.sees(1, 1).await;
        Self { holder, waiting, observer }
    }

    async fn by_sentinel(sentinels: &Sentinels, heartbeat_timeout: Duration) -> Self {
        let client = || by_sentinel(sentinels, heartbeat_timeout);
        Self::set([client().await, client().await, client().await]).await
    }

    /// Checks that the permit is still held, and is handed off when it is released. Only the
    /// promoted server knows the permit.
    async fn ends_well(self, pair: &Pair) {
        let refresh = async || self.holder.refresh().await;
        let refreshed = eventually("a refresh that succeeds", refresh, Result::is_ok).await;
        refreshed.unwrap();
        eventually("all listen there", async || subscribers(pair, 1), |n| *n == 3).await;
        let token = self.holder.fencing_token();
        in_time("the release", self.holder.release()).await.unwrap();
        let next = in_time("the waiter's turn", self.waiting).await.unwrap().unwrap();
        assert!(next.fencing_token() > token);
        in_time("the release", next.release()).await.unwrap();
        self.observer.sees(0, 0).await;
    }
}

fn subscribers(pair: &Pair, server: usize) -> usize {
    // Sentinels subscribe to other channels.
    let channels: Vec<String> = redis::cmd("PUBSUB")
        .arg(&["CHANNELS", "sem:wake:*"])
        .query(&mut pair.connect(server))
        .unwrap();
    channels.len()
}

#[tokio::test]
async fn permits_and_waits_survive_a_dead_primary() {
    let mut pair = Pair::start();
    let sentinels = Sentinels::watch(&pair);
    let scene = Scene::by_sentinel(&sentinels, HEARTBEAT_TIMEOUT).await;
    pair.is_in_step();
    sentinels.be_patient(SECOND);
    pair.servers[0].kill();
    until("the replica is promoted", || pair.role(1) == "master");
    scene.ends_well(&pair).await;
}

#[tokio::test]
async fn permits_and_waits_survive_a_dead_primary_and_a_silent_sentinel() {
    let mut pair = Pair::start();
    let sentinels = Sentinels::watch(&pair);
    sentinels.be_patient(SECOND);
    sentinels.silence_first();
    let scene = Scene::by_sentinel(&sentinels, HEARTBEAT_TIMEOUT).await;
    pair.is_in_step();
    pair.servers[0].kill();
    until("the replica is promoted", || pair.role(1) == "master");
    scene.ends_well(&pair).await;
}

/// The address now leads to another server, and no connection is cut. The old server replies that
/// it is a replica.
#[tokio::test]
async fn permits_and_waits_survive_a_failover_behind_one_address() {
    let pair = Pair::start();
    let proxy = Proxy::start(pair.servers[0].port).await;
    let client = async || builder(SHORT_HEARTBEAT_TIMEOUT).connect(&proxy.url()).await.unwrap();
    let observer = client().await;
    let scene = Scene::set([client().await, client().await, observer.clone()]).await;
    pair.is_in_step();
    pair.promote(1);
    pair.demote(0, 1);
    proxy.lead_to(pair.servers[1].port);
    // A client that neither holds nor waits finds out when it makes a call that writes.
    assert!(build(&observer).try_acquire().await.unwrap().is_none());
    scene.ends_well(&pair).await;
}

/// The client can connect to the replica, but the replica rejects calls. The attempts must not be
/// more frequent than if connections failed.
#[tokio::test]
async fn a_client_that_reaches_only_a_replica_pauses_between_attempts() {
    let pair = Pair::start();
    let proxy = Proxy::start(pair.servers[0].port).await;
    let client = builder(SHORT_HEARTBEAT_TIMEOUT).response_timeout(Duration::from_secs(2));
    let client = client.connect(&proxy.url()).await.unwrap();
    let mut waits = tokio::task::JoinSet::new();
    for number in 0..10 {
        let semaphore = client.semaphore(format!("printer-{number}")).limit(1).build().unwrap();
        let held = semaphore.acquire().await.unwrap();
        waits.spawn(async move { semaphore.acquire().await.map(drop).or(held.release().await) });
    }
    let queued = async || {
        let queues = (0..10).map(|number| format!("sem:{{printer-{number}}}:queue"));
        redis::cmd("EXISTS").arg(queues.collect::<Vec<_>>()).query(&mut pair.connect(0)).unwrap()
    };
    eventually("all wait", queued, |queued: &u32| *queued == 10).await;
    pair.promote(1);
    pair.demote(0, 1);
    let (before, began) = (proxy.accepted(), Instant::now());
    let more = async || proxy.accepted() - before;
    // Each of the two connections makes 12 attempts. The 7th pause may last up to a second.
    eventually("connections", more, |more| *more >= 24).await;
    assert!(began.elapsed() > Duration::from_secs(2), "within {:?}", began.elapsed());
}

#[tokio::test]
async fn permits_and_waits_survive_a_silent_primary() {
    let pair = Pair::start();
    let sentinels = Sentinels::watch(&pair);
    let scene = Scene::by_sentinel(&sentinels, SHORT_HEARTBEAT_TIMEOUT).await;
    pair.is_in_step();
    sentinels.be_patient(SECOND);
    pair.servers[0].signal(Signal::SIGSTOP);
    until("the replica is promoted", || pair.role(1) == "master");
    scene.ends_well(&pair).await;
    // After the old primary resumes, it is demoted, and no client is connected to it.
    pair.servers[0].signal(Signal::SIGCONT);
    until("the old primary is a replica", || pair.role(0) == "slave connected");
    assert_eq!(subscribers(&pair, 0), 0);
}

#[tokio::test]
async fn permits_and_waits_survive_a_planned_failover_by_sentinels() {
    let pair = Pair::start();
    let sentinels = Sentinels::watch(&pair);
    let scene = Scene::by_sentinel(&sentinels, HEARTBEAT_TIMEOUT).await;
    pair.is_in_step();
    sentinels.fail_over();
    until("the replica is promoted", || pair.role(1) == "master");
    until("the old primary is a replica", || pair.role(0) == "slave connected");
    scene.ends_well(&pair).await;
    eventually("a replica without listeners", async || subscribers(&pair, 0), |n| *n == 0).await;
}

#[tokio::test]
async fn permits_and_waits_survive_a_manual_promotion() {
    let pair = Pair::start();
    let scene =
        Scene::set([by_asking(&pair).await, by_asking(&pair).await, by_asking(&pair).await]).await;
    assert_eq!((subscribers(&pair, 0), subscribers(&pair, 1)), (3, 0));
    pair.is_in_step();
    pair.promote(1);
    pair.demote(0, 1);
    scene.ends_well(&pair).await;
    eventually("a replica without listeners", async || subscribers(&pair, 0), |n| *n == 0).await;
}

#[tokio::test]
async fn permits_and_waits_survive_a_manual_promotion_after_a_crash() {
    let mut pair = Pair::start();
    let scene =
        Scene::set([by_asking(&pair).await, by_asking(&pair).await, by_asking(&pair).await]).await;
    pair.is_in_step();
    pair.servers[0].kill();
    pair.promote(1);
    scene.ends_well(&pair).await;
}

#[tokio::test]
async fn connecting_reports_that_no_primary_exists() {
    let mut pair = Pair::start();
    let sentinels = Sentinels::watch(&pair);
    let refused = builder(HEARTBEAT_TIMEOUT).connect_sentinel(sentinels.client_of("lorries")).await;
    let Err(Error::Connect { address, kind, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(address, "the primary that the sentinels name");
    assert_eq!(kind, ConnectErrorKind::NoPrimary);

    pair.servers[0].kill();
    let refused = builder(HEARTBEAT_TIMEOUT).connect_primary_of(pair.urls()).await;
    let Err(Error::Connect { reason, kind, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(kind, ConnectErrorKind::NoPrimary);
    let replica = format!("127.0.0.1:{}: it is a replica", pair.servers[1].port);
    assert!(reason.contains("no server in the list is a primary"), "{reason}");
    assert!(reason.contains(&replica), "{reason}");

    let none: [String; 0] = [];
    let refused = SemaphoreClient::builder().connect_primary_of(none).await;
    assert!(matches!(refused, Err(Error::Invalid { what: "servers", .. })), "{refused:?}");
}

/// This happens if the former primary is started again after a failover.
#[tokio::test]
async fn two_primaries_in_a_list_are_refused() {
    let pair = Pair::start();
    let client = builder(HEARTBEAT_TIMEOUT).connect_primary_of(pair.urls()).await.unwrap();
    pair.promote(1);
    for _ in 0..20 {
        let refused = builder(HEARTBEAT_TIMEOUT).connect_primary_of(pair.urls()).await;
        let Err(Error::Connect { reason, kind, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(kind, ConnectErrorKind::NoPrimary);
        assert!(
            reason.contains("two addresses in the list lead to primaries: 127.0.0.1:"),
            "{reason}"
        );
    }
    build(&client).acquire().await.unwrap().release().await.unwrap();
    pair.demote(1, 0);
    let connect = async || builder(HEARTBEAT_TIMEOUT).connect_primary_of(pair.urls()).await;
    eventually("a connection", connect, Result::is_ok).await.unwrap();
}

/// The replica's reply must not prevent the connection to the primary. Several attempts are made,
/// because either server may reply first.
#[tokio::test]
async fn a_replica_with_another_password_does_not_prevent_connecting() {
    let (primary, replica) = (Server::start(), Server::start());
    primary.grant("+role");
    let mut password = redis::cmd("CONFIG");
    password.arg("SET").arg("requirepass").arg("another").exec(&mut replica.connect()).unwrap();
    let stranger = format!("redis://127.0.0.1:{}/", replica.port);
    for _ in 0..20 {
        SemaphoreClient::builder().connect_primary_of([&*stranger, &primary.url()]).await.unwrap();
    }
    let refused = SemaphoreClient::builder().connect_primary_of([&*stranger]).await;
    let Err(Error::Connect { kind, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(kind, ConnectErrorKind::Authentication);
}
