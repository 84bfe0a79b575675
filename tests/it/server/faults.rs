//! Tests of failures while a client waits. Each waiter still gets a permit, or a clear error.

use std::time::Duration;

use redis_semaphore::{Error, Permit, Semaphore, SemaphoreClient};
use tokio::task::JoinHandle;

use test_support::observer::{Observer, eventually, in_time};
use test_support::proxy::{Flow, Proxy};
use test_support::server::Server;

const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(3);

/// Another client holds the only permit, and one client waits through a proxy.
struct Scene {
    server: Server,
    proxy: Proxy,
    semaphore: Semaphore,
    observer: Observer,
    other: Permit,
    waiting: JoinHandle<Result<Permit, Error>>,
}

impl Scene {
    async fn set() -> Self {
        let server = Server::start();
        let proxy = Proxy::start(server.port).await;
        let observer = Observer::new(&server.url(), "fault", 1).await;
        let direct = SemaphoreClient::connect(&server.url()).await.unwrap();
        let other = direct.semaphore("fault").limit(1).build().unwrap().acquire().await.unwrap();
        let client = SemaphoreClient::builder()
            .heartbeat_timeout(HEARTBEAT_TIMEOUT)
            .response_timeout(Duration::from_millis(500))
            .connect(&proxy.url())
            .await
            .unwrap();
        let semaphore = client.semaphore("fault").limit(1).build().unwrap();
        let waiting = start_waiting(&semaphore);
        observer.sees(1, 1).await;
        Self { server, proxy, semaphore, observer, other, waiting }
    }

    /// Checks that the waiter gets the released permit, and that nothing remains.
    async fn ends_well(self) {
        self.other.release().await.unwrap();
        let permit = turn(self.waiting).await.unwrap();
        permit.release().await.unwrap();
        self.observer.sees(0, 0).await;
    }

    /// Cuts all connections and waits until the server has noticed. Otherwise the server could
    /// execute a call over another connection before it notices the cut.
    async fn cut_all(&self) {
        let mut connection = self.server.connect();
        let mut subscribers = || -> usize {
            let mut list = redis::cmd("CLIENT");
            list.arg(&["LIST", "TYPE", "pubsub"]);
            list.query::<String>(&mut connection).unwrap().lines().count()
        };
        let before = subscribers();
        self.proxy.cut_all();
        let what = "the server knows of the cut";
        eventually(what, async || subscribers(), |now| *now < before).await;
    }
}

fn start_waiting(semaphore: &Semaphore) -> JoinHandle<Result<Permit, Error>> {
    let semaphore = semaphore.clone();
    tokio::spawn(async move { semaphore.acquire().await })
}

async fn turn(waiting: JoinHandle<Result<Permit, Error>>) -> Result<Permit, Error> {
    in_time("the waiter's turn", waiting).await.unwrap()
}

#[tokio::test]
async fn a_wait_survives_a_cut_subscription_connection() {
    let scene = Scene::set().await;
    scene.proxy.cut_wakeups();
    scene.ends_well().await;
}

#[tokio::test]
async fn a_wait_survives_a_subscription_connection_killed_by_the_server() {
    let scene = Scene::set().await;
    let kill = ["KILL", "TYPE", "pubsub"];
    redis::cmd("CLIENT").arg(&kill).exec(&mut scene.server.connect()).unwrap();
    scene.ends_well().await;
}

#[tokio::test]
async fn a_wait_survives_an_outage_of_both_connections() {
    let scene = Scene::set().await;
    scene.proxy.refuse_connections(true);
    scene.cut_all().await;
    // The permit is released during the outage. The waiter is not subscribed, so the server removes
    // it from the queue.
    let Scene { proxy, semaphore, observer, other, waiting, .. } = scene;
    other.release().await.unwrap();
    observer.sees(0, 0).await;
    proxy.refuse_connections(false);
    let permit = turn(waiting).await.unwrap();
    permit.release().await.unwrap();
    assert!(semaphore.try_acquire().await.unwrap().is_some());
}

/// The subscription follows the commands to their new connection without a gap, so the head of the
/// queue stays the head.
#[tokio::test]
async fn a_wait_keeps_its_position_when_the_command_connection_is_cut() {
    let scene = Scene::set().await;
    let direct = SemaphoreClient::connect(&scene.server.url()).await.unwrap();
    let second = start_waiting(&direct.semaphore("fault").limit(1).build().unwrap());
    scene.observer.sees(1, 2).await;
    scene.proxy.cut_commands();
    assert!(scene.semaphore.try_acquire().await.unwrap().is_none());
    scene.other.release().await.unwrap();
    let permit = turn(scene.waiting).await.unwrap();
    assert_eq!(scene.observer.sees(1, 1).await.holders[0].id, permit.id());
    permit.release().await.unwrap();
    turn(second).await.unwrap().release().await.unwrap();
    scene.observer.sees(0, 0).await;
}

#[tokio::test]
async fn a_wait_gets_its_permit_by_heartbeat_if_the_grant_message_is_lost() {
    let scene = Scene::set().await;
    scene.proxy.messages(Flow::Swallow);
    let Scene { server, observer, other, waiting, .. } = scene;
    let before: u64 = server.calls("evalsha");
    other.release().await.unwrap();
    let permit = turn(waiting).await.unwrap();
    // The calls are the release, the next heartbeat, and perhaps a heartbeat that was under way. A
    // client sends three heartbeats per heartbeat timeout.
    let calls = server.calls("evalsha") - before;
    assert!(calls <= 3, "{calls} calls");
    permit.release().await.unwrap();
    observer.sees(0, 0).await;
}

/// The connection is open, and messages are published, but none arrives. The client finds out with
/// a ping.
#[tokio::test]
async fn a_silent_subscription_connection_is_replaced() {
    let scene = Scene::set().await;
    let subscribed = async || -> u64 { scene.server.calls("subscribe") };
    let (before, connections) = (subscribed().await, scene.proxy.accepted());
    scene.proxy.messages(Flow::Swallow);
    let replaced = async || scene.proxy.accepted();
    eventually("another connection", replaced, |now| *now > connections).await;
    scene.proxy.messages(Flow::Pass);
    eventually("a new subscription", subscribed, |now| *now > before).await;
    scene.ends_well().await;
}

#[tokio::test]
async fn a_wait_survives_a_script_flush() {
    let scene = Scene::set().await;
    redis::cmd("SCRIPT").arg("FLUSH").exec(&mut scene.server.connect()).unwrap();
    scene.ends_well().await;
}

#[tokio::test]
async fn a_wait_survives_a_pause_of_the_server() {
    let scene = Scene::set().await;
    // The pause is longer than the response timeout, so calls are retried on another connection.
    redis::cmd("CLIENT").arg("PAUSE").arg(1_500).exec(&mut scene.server.connect()).unwrap();
    scene.ends_well().await;
}

#[tokio::test]
async fn waits_survive_an_empty_restart_of_the_server() {
    let mut scene = Scene::set().await;
    let second = start_waiting(&scene.semaphore);
    scene.observer.sees(1, 2).await;
    scene.server.restart_empty();
    // The server has lost the other client's permit. The waiters return with their tickets, and are
    // granted.
    let Scene { observer, waiting, .. } = scene;
    let permit = turn(waiting).await.unwrap();
    permit.release().await.unwrap();
    turn(second).await.unwrap().release().await.unwrap();
    observer.sees(0, 0).await;
}

#[tokio::test]
async fn waiters_rejoin_a_deleted_queue_in_their_order() {
    let scene = Scene::set().await;
    let second = start_waiting(&scene.semaphore);
    let before = scene.observer.sees(1, 2).await;
    let keys = ["sem:{fault}:queue", "sem:{fault}:clients"];
    redis::cmd("DEL").arg(&keys).exec(&mut scene.server.connect()).unwrap();
    let after = scene.observer.sees(1, 2).await;
    let ids = |now: &redis_semaphore::Inspection| -> Vec<String> {
        now.waiters.iter().map(|waiter| waiter.id.clone()).collect()
    };
    assert_eq!(ids(&before), ids(&after));
    second.abort();
    scene.ends_well().await;
}

#[tokio::test]
async fn an_outage_longer_than_the_tolerance_ends_the_wait_with_a_clear_error() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let direct = SemaphoreClient::connect(&server.url()).await.unwrap();
    let other = direct.semaphore("gone").limit(1).build().unwrap().acquire().await.unwrap();
    let tolerance = Duration::from_millis(500);
    let client = SemaphoreClient::builder()
        .heartbeat_timeout(Duration::from_millis(300))
        .outage_tolerance(tolerance)
        .connect(&proxy.url())
        .await
        .unwrap();
    let semaphore = client.semaphore("gone").limit(1).build().unwrap();
    let waiting = start_waiting(&semaphore);
    let observer = Observer::new(&server.url(), "gone", 1).await;
    observer.sees(1, 1).await;
    proxy.refuse_connections(true);
    proxy.cut_all();
    match turn(waiting).await {
        Err(Error::Unavailable { semaphore, elapsed, .. }) => {
            assert_eq!(semaphore, "gone");
            assert!(elapsed >= tolerance);
        }
        other => panic!("{other:?}"),
    }
    // A new wait also fails after the outage tolerance. A call that does not wait fails after the
    // call timeout.
    let refused = semaphore.acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused}");
    let refused = semaphore.try_acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused}");
    proxy.refuse_connections(false);
    // When Redis is available again, the abandoned request leaves the queue or is skipped.
    other.release().await.unwrap();
    let left = || async { observer.look().await };
    eventually("nothing is left", left, |now| now.held == 0 && now.queued == 0).await;
}

/// If a server stops replying without closing the connection, the client replaces the connection
/// after two response timeouts.
#[tokio::test]
async fn a_silent_connection_is_replaced() {
    let scene = Scene::set().await;
    scene.proxy.replies(Flow::Swallow);
    let refused = scene.semaphore.try_acquire().await;
    assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
    scene.proxy.replies(Flow::Pass);
    scene.ends_well().await;
}

/// A refresh fails after a sixth of its lease. For a short lease, this failure must not close a
/// connection that other calls use.
#[tokio::test]
async fn failed_refreshes_of_short_leases_do_not_close_the_connection() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let builder = SemaphoreClient::builder().response_timeout(Duration::from_secs(60));
    let client = builder.connect(&proxy.url()).await.unwrap();
    let build = |name: &str, lease| client.semaphore(name).limit(2).lease(lease).build().unwrap();
    let short = build("short", Duration::from_millis(600));
    let long = build("long", Duration::from_secs(600));
    let permit = short.acquire().await.unwrap();
    drop(long.acquire().await.unwrap());
    let connections = proxy.accepted();
    proxy.replies(Flow::Hold);
    in_time("the loss", permit.lost()).await;
    proxy.replies(Flow::Pass);
    drop(in_time("another permit", long.acquire()).await.unwrap());
    assert_eq!(proxy.accepted(), connections);
}

#[tokio::test]
async fn a_key_of_another_type_is_reported_to_waits_and_calls() {
    let scene = Scene::set().await;
    let mut connection = scene.server.connect();
    redis::cmd("SET").arg("sem:{fault}:queue").arg("mine").exec(&mut connection).unwrap();
    let refused = turn(scene.waiting).await.unwrap_err();
    assert!(matches!(refused, Error::Rejected { .. }), "{refused}");
    let text = refused.to_string();
    assert!(text.contains("SEM_TYPE") && text.contains("sem:{fault}:queue"), "{text}");
    let refused = scene.semaphore.try_acquire().await.unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("SEM_TYPE") && text.contains("try_acquire"), "{text}");
    redis::cmd("DEL").arg("sem:{fault}:queue").exec(&mut connection).unwrap();
    scene.other.release().await.unwrap();
    scene.observer.sees(0, 0).await;
}

#[tokio::test]
async fn calls_are_rejected_if_the_protocol_version_differs() {
    let scene = Scene::set().await;
    let mut connection = scene.server.connect();
    let set = ["sem:{fault}:state", "version", "2"];
    redis::cmd("HSET").arg(&set).exec(&mut connection).unwrap();
    let refused = scene.semaphore.try_acquire().await.unwrap_err();
    assert!(refused.to_string().contains("SEM_VERSION"), "{refused}");
    assert!(scene.other.release().await.is_err());
}

/// The reply to a heartbeat contains "queued", and arrives after the message of a later handoff.
/// This reply must not make the client release the permit.
#[tokio::test]
async fn a_late_queued_reply_does_not_release_a_granted_permit() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let observer = Observer::new(&server.url(), "early", 1).await;
    let client = SemaphoreClient::builder().heartbeat_timeout(Duration::from_millis(1500));
    let client = client.connect(&proxy.url()).await.unwrap();
    let semaphore = client.semaphore("early").limit(1).build().unwrap();
    let elsewhere = SemaphoreClient::connect(&server.url()).await.unwrap();
    let held = elsewhere.semaphore("early").limit(1).build().unwrap().acquire().await.unwrap();
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await }
    });
    observer.sees(1, 1).await;
    let mut connection = server.connect();
    let mut received = async || -> Vec<String> {
        redis::cmd("ZRANGE")
            .arg(&["sem:{early}:clients", "0", "-1", "WITHSCORES"])
            .query(&mut connection)
            .unwrap()
    };
    let before = received().await;
    proxy.replies(Flow::Hold);
    eventually("a heartbeat", received, |received| *received != before).await;
    held.release().await.unwrap();
    let permit = in_time("the permit", waiting).await.unwrap().unwrap();
    proxy.replies(Flow::Pass);
    // These calls use the same connection, so the held-back reply has been read when these calls
    // return.
    for _ in 0..50 {
        assert_eq!(semaphore.inspect().await.unwrap().held, 1);
    }
    permit.release().await.unwrap();
}

/// The server's clock jumps beyond the end of a lease. The waiter gets the permit, and the holder
/// finds out that its permit is lost.
#[tokio::test]
async fn a_forward_jump_of_the_server_clock_makes_the_holder_lose_its_permit() {
    let server = Server::start();
    let of_process = async || {
        let client = SemaphoreClient::connect(&server.url()).await.unwrap();
        let lease = Duration::from_secs(6);
        client.semaphore("clock").limit(1).lease(lease).build().unwrap()
    };
    let (one, other) = (of_process().await, of_process().await);
    let first = one.acquire().await.unwrap();
    let waiting = start_waiting(&other);
    let queued = async || one.inspect().await.unwrap().queued;
    eventually("the waiter", queued, |queued| *queued == 1).await;
    server.clock.run_ahead_by(60_000_000);
    let second = turn(waiting).await.unwrap();
    assert!(second.fencing_token() > first.fencing_token());
    in_time("the loss", first.lost()).await;
    // The clock jumps back by more than any lease: no holder loses its permit.
    server.clock.run_ahead_by(0);
    second.refresh().await.unwrap();
    assert_eq!(one.inspect().await.unwrap().held, 1);
    second.release().await.unwrap();
    assert!(one.try_acquire().await.unwrap().is_some());
}
