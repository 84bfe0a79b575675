//! Tests of outages as users see them: the result of each call, and the recovery afterwards.
//! `docs/failure-modes.md` lists the results in a table.

mod names;
mod patience;
mod stampede;

use std::time::Duration;

use nix::sys::signal::Signal;
use redis_semaphore::{
    ConnectErrorKind, Error, Permit, Semaphore, SemaphoreClient, SemaphoreClientBuilder,
};
use tokio::net::TcpListener;

use test_support::observer::{Observer, connected, eventually, in_time};
use test_support::server::Server;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Away {
    /// Connections are refused. Redis restarts with its data.
    Down,
    /// Connections are accepted, and Redis never replies.
    Silent,
}

impl Away {
    fn begin(self, server: &mut Server) {
        match self {
            Self::Down => server.kill(),
            Self::Silent => server.signal(Signal::SIGSTOP),
        }
    }

    fn end(self, server: &mut Server) {
        match self {
            Self::Down => server.start_again(),
            Self::Silent => server.signal(Signal::SIGCONT),
        }
    }
}

/// The permits and requests of four callers when the outage begins.
struct Scene {
    observer: Observer,
    semaphore: Semaphore,
    holder: Permit,
    to_release: Permit,
    to_drop: Permit,
    waiting: tokio::task::JoinHandle<Result<Permit, Error>>,
}

impl Scene {
    async fn set(server: &Server, builder: SemaphoreClientBuilder, lease: Duration) -> Self {
        let client = connected(builder, &server.url()).await;
        let semaphore = client.semaphore("dam").limit(3).lease(lease).build().unwrap();
        let acquire = async || semaphore.acquire().await.unwrap();
        let (holder, to_release, to_drop) = (acquire().await, acquire().await, acquire().await);
        let waiting = tokio::spawn({
            let semaphore = semaphore.clone();
            async move { semaphore.acquire_many(3).await }
        });
        // While the observer connects, the waiter's client must not give up.
        let observer = Observer::new(&server.url(), "dam", 3).await;
        observer.sees(3, 1).await;
        Self { observer, semaphore, holder, to_release, to_drop, waiting }
    }

    /// Checks that calls during the outage fail with `Unavailable` after the call timeout.
    async fn calls_fail(semaphore: &Semaphore, to_release: Permit, response_timeout: Duration) {
        let (tried, released, inspected) = tokio::join!(
            in_time("a reply to a try", semaphore.try_acquire()),
            in_time("a reply to a release", to_release.release()),
            in_time("a reply to an inspection", semaphore.inspect()),
        );
        for error in [tried.err(), released.err(), inspected.err()] {
            let Some(Error::Unavailable { semaphore, elapsed, .. }) = error else {
                panic!("{error:?}");
            };
            assert_eq!(semaphore, "dam");
            // A call fails early if no further attempt can begin in time. The pause before an
            // attempt is shorter than the response timeout.
            assert!(elapsed > response_timeout, "{elapsed:?}");
        }
    }
}

fn persistent() -> Server {
    Server::start_with(&["--appendonly", "yes", "--appendfsync", "always"])
}

/// Tests a short outage with the default settings. Waits and leases survive the outage.
async fn until_calls_fail(away: Away) {
    let mut server = persistent();
    let scene = Scene::set(&server, SemaphoreClient::builder(), Duration::from_secs(30)).await;
    let Scene { observer, semaphore, holder, to_release, to_drop, waiting } = scene;
    away.begin(&mut server);
    drop(to_drop);
    Scene::calls_fail(&semaphore, to_release, Duration::from_secs(2)).await;
    assert!(!waiting.is_finished() && !holder.is_lost());
    away.end(&mut server);
    // The background work releases the dropped permit, and the permit whose release failed. The
    // third permit is still held.
    observer.sees(1, 1).await;
    in_time("the release", holder.release()).await.unwrap();
    let permit = in_time("its turn", waiting).await.unwrap().unwrap();
    permit.release().await.unwrap();
    observer.sees(0, 0).await;
}

#[tokio::test]
async fn permits_and_waits_survive_a_short_outage_with_redis_down() {
    until_calls_fail(Away::Down).await;
}

#[tokio::test]
async fn permits_and_waits_survive_a_short_outage_with_redis_silent() {
    until_calls_fail(Away::Silent).await;
}

/// Tests a long outage with the default settings divided by 20.
async fn until_waits_and_leases_end(away: Away) {
    const FASTER: u32 = 20;
    let normal = Duration::from_secs;
    // The response timeout is twice the default, for busy machines.
    let (response_timeout, tolerance) = (normal(4) / FASTER, normal(30) / FASTER);
    let mut server = persistent();
    let builder = SemaphoreClient::builder()
        .response_timeout(response_timeout)
        .heartbeat_timeout(normal(15) / FASTER)
        .outage_tolerance(tolerance);
    let scene = Scene::set(&server, builder, normal(30) / FASTER).await;
    let Scene { observer, semaphore, holder, to_release, to_drop, waiting } = scene;
    away.begin(&mut server);
    drop(to_drop);
    Scene::calls_fail(&semaphore, to_release, response_timeout).await;
    in_time("the loss", holder.lost()).await;
    let gave_up = in_time("the end of the wait", waiting).await.unwrap();
    let refused = in_time("the end of a new wait", semaphore.acquire()).await;
    for error in [gave_up.unwrap_err(), refused.unwrap_err()] {
        let Error::Unavailable { elapsed, .. } = error else { panic!("{error}") };
        assert!(elapsed > tolerance / 2, "{elapsed:?}");
    }
    away.end(&mut server);
    // All permits are free, and a request that stayed in the queue is skipped.
    let acquire = async || semaphore.acquire_many(3).await;
    let permit = eventually("a permit after the outage", acquire, Result::is_ok).await.unwrap();
    permit.release().await.unwrap();
    observer.sees(0, 0).await;
    assert!(matches!(holder.release().await, Err(Error::Lost { .. })), "a lost permit stays lost");
}

#[tokio::test]
async fn a_long_outage_with_redis_down_ends_waits_and_leases() {
    until_waits_and_leases_end(Away::Down).await;
}

#[tokio::test]
async fn a_long_outage_with_redis_silent_ends_waits_and_leases() {
    until_waits_and_leases_end(Away::Silent).await;
}

#[tokio::test]
async fn connecting_reports_whether_redis_is_down_or_silent() {
    let timeout = Duration::from_millis(200);
    let connect = async |url: &str| {
        let connecting = SemaphoreClient::builder().response_timeout(timeout).connect(url);
        match in_time("a reply", connecting).await {
            Err(Error::Connect { address, kind, reason, .. }) => (address, kind, reason),
            other => panic!("{other:?}"),
        }
    };
    let mut server = Server::start();
    server.signal(Signal::SIGSTOP);
    let (address, kind, silent) = connect(&server.url()).await;
    assert_eq!(address, format!("127.0.0.1:{}", server.port));
    assert_eq!(kind, ConnectErrorKind::TimedOut);
    assert!(silent.contains("accepts connections but did not reply within 200 ms"), "{silent}");
    server.kill();
    let (_, kind, down) = connect(&server.url()).await;
    assert_eq!(kind, ConnectErrorKind::Refused, "{down}");
    // This server is not Redis. It accepts connections and never replies.
    let stranger = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}/", stranger.local_addr().unwrap());
    let (_, kind, silent) = connect(&url).await;
    assert_eq!(kind, ConnectErrorKind::TimedOut, "{silent}");
}

/// Without an outage tolerance, calls still wait for their replies.
#[tokio::test]
async fn calls_wait_for_replies_without_an_outage_tolerance() {
    let server = Server::start();
    let builder = SemaphoreClient::builder().outage_tolerance(Duration::ZERO);
    let client = builder.connect(&server.url()).await.unwrap();
    let semaphore = client.semaphore("dam").limit(1).build().unwrap();
    let permit = semaphore.acquire().await.unwrap();
    let adopted = semaphore.adopt(permit.detach()).await.unwrap();
    adopted.release().await.unwrap();
}
