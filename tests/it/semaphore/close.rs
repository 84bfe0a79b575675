//! Tests of `close`. A closed semaphore acquires and adopts no more permits. Other calls of the
//! closed semaphore, and all calls of other semaphores, work as before.

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use redis_semaphore::{Error, Permit, Semaphore, SemaphoreClient};
use tokio::task::JoinSet;

use test_support::observer::{Observer, eventually, in_time, refreshed};
use test_support::proxy::{Flow, Proxy};
use test_support::server::{Server, shared_url, unique_name};

fn assert_closed<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert!(matches!(result, Err(Error::Closed { .. })), "{result:?}");
}

#[tokio::test]
async fn close_ends_waits_and_keeps_held_permits() {
    let (url, name) = (shared_url(), unique_name());
    let observer = Observer::new(&url, &name, 2).await;
    let lease = Duration::from_secs(3);
    let client = SemaphoreClient::connect(&url).await.unwrap();
    let build = || client.semaphore(&name).limit(2).lease(lease).build().unwrap();
    let (semaphore, other) = (build(), build());
    let held = semaphore.acquire_many(2).await.unwrap();
    let early = semaphore.request().acquire();
    let mut waits = JoinSet::new();
    for _ in 0..10 {
        waits.spawn(semaphore.request().acquire());
    }
    observer.sees(2, 10).await;
    let other_wait = tokio::spawn(other.request().acquire());
    observer.sees(2, 11).await;

    let clone = semaphore.clone();
    assert!(!clone.is_closed());
    semaphore.close();
    semaphore.close();
    assert!(clone.is_closed() && !other.is_closed());
    for ended in in_time("the end of the waits", waits.join_all()).await {
        assert_closed(ended);
    }
    observer.sees(2, 1).await;
    assert_closed(early.await);
    assert_closed(clone.acquire().await);
    assert_closed(clone.try_acquire().await);
    assert_closed(clone.acquire_timeout(Duration::ZERO).await);
    assert_eq!(semaphore.inspect().await.unwrap().held, 2);

    refreshed(&held).await;
    held.release().await.unwrap();
    let next = in_time("the other's turn", other_wait).await.unwrap().unwrap();
    next.release().await.unwrap();
    build().acquire().await.unwrap().release().await.unwrap();
    observer.sees(0, 0).await;
}

/// The requests end immediately, although no reply arrives. The effects of the requests on the
/// server are undone.
#[tokio::test]
async fn close_ends_requests_under_way_and_undoes_their_effects() {
    // The held-back replies arrive late. Before they arrive, only `close` ends a request.
    for (flow, timeout) in [(Flow::Hold, 3_600_000), (Flow::Swallow, 500)] {
        let server = Server::start();
        let proxy = Proxy::start(server.port).await;
        let observer = Observer::new(&server.url(), "closed", 3).await;
        let connect = SemaphoreClient::builder().response_timeout(Duration::from_millis(timeout));
        let client = connect.connect(&proxy.url()).await.unwrap();
        let semaphore = client.semaphore("closed").limit(3).build().unwrap();
        semaphore.acquire().await.unwrap().release().await.unwrap();
        proxy.replies(flow);
        let mut requests = JoinSet::new();
        // One request fits, and another request is queued.
        requests.spawn(semaphore.request().weight(2).acquire());
        observer.sees(2, 0).await;
        requests.spawn(semaphore.request().weight(2).acquire());
        observer.sees(2, 1).await;
        proxy.requests(Flow::Hold);
        for _ in 0..20 {
            requests.spawn(semaphore.request().acquire());
            let tried = semaphore.request().try_acquire();
            requests.spawn(async { tried.await.map(|permit| permit.expect("nothing")) });
        }
        let held = async || proxy.held_requests();
        eventually("more requests are under way", held, |held| *held > 0).await;
        semaphore.close();
        for ended in in_time("the end of the requests", requests.join_all()).await {
            assert_closed(ended);
        }
        proxy.requests(Flow::Pass);
        proxy.replies(Flow::Pass);
        observer.sees(0, 0).await;
    }
}

/// Each request ends with a permit that the server knows, or with `Error::Closed` and no permit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_during_a_close_returns_a_held_permit_or_an_error() {
    let (url, name) = (shared_url(), unique_name());
    let observer = Observer::new(&url, &name, 20).await;
    let client = SemaphoreClient::connect(&url).await.unwrap();
    for round in 0..20 {
        let semaphore = client.semaphore(&name).limit(20).build().unwrap();
        let mut tasks = JoinSet::new();
        for _ in 0..50 {
            tasks.spawn(semaphore.request().acquire());
        }
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        semaphore.close();
        let (permits, errors): (Vec<Result<Permit, Error>>, Vec<_>) =
            in_time("all ends", tasks.join_all()).await.into_iter().partition(Result::is_ok);
        errors.into_iter().for_each(assert_closed);
        for permit in permits {
            permit.unwrap().release().await.expect("it is held");
        }
        observer.sees(0, 0).await;
    }
}

/// A request may wait for the reply to its call, or for a replica after its call. `close` also ends
/// such a wait.
#[tokio::test]
async fn close_and_shutdown_end_requests_that_wait_for_a_reply_or_a_replica() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let hour = Duration::from_secs(3600);
    for is_shutdown in [false, true] {
        let builder = SemaphoreClient::builder().outage_tolerance(hour);
        let client = builder.connect(&proxy.url()).await.unwrap();
        let plain = client.semaphore("plain").limit(3).build().unwrap();
        // No replica exists.
        server.grant("+wait");
        let careful = client.semaphore("careful").limit(3).lease(hour);
        let careful = careful.acknowledged_by(1, hour / 2).build().unwrap();
        let acknowledged = tokio::spawn(careful.request().acquire());
        let observer = Observer::new(&server.url(), "careful", 3).await;
        observer.sees(1, 0).await;
        proxy.replies(Flow::Swallow);
        let swallowed = proxy.passed_requests();
        let called = tokio::spawn(plain.request().acquire());
        let passed = async || proxy.passed_requests();
        eventually("the call is sent", passed, |passed| *passed > swallowed).await;
        match is_shutdown {
            true => in_time("the shutdown", client.shutdown()).await,
            false => [&plain, &careful].into_iter().for_each(Semaphore::close),
        }
        for request in [called, acknowledged] {
            let ended = in_time("its end", request).await.unwrap();
            match is_shutdown {
                true => assert!(matches!(ended, Err(Error::Shutdown)), "{ended:?}"),
                false => assert_closed(ended),
            }
        }
        proxy.replies(Flow::Pass);
    }
}

/// Each shutdown returns when Redis has confirmed all releases.
#[tokio::test]
async fn concurrent_shutdowns_return_after_all_releases_are_confirmed() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let observer = Observer::new(&server.url(), "twice", 1).await;
    let patient = SemaphoreClient::builder().response_timeout(Duration::from_secs(60));
    let client = patient.connect(&proxy.url()).await.unwrap();
    let semaphore = client.semaphore("twice").limit(1).build().unwrap();
    let permit = semaphore.acquire().await.unwrap();
    proxy.requests(Flow::Hold);
    drop(permit);
    let mut first = pin!(client.shutdown());
    assert!(first.as_mut().now_or_never().is_none());
    let closed =
        async || matches!(semaphore.try_acquire().now_or_never(), Some(Err(Error::Shutdown)));
    eventually("the shutdown has begun", closed, |closed| *closed).await;
    let mut second = pin!(client.shutdown());
    tokio::select! {
        biased;
        () = &mut second => panic!("the release has not arrived yet"),
        now = observer.look() => assert_eq!(now.held, 1),
    }
    proxy.requests(Flow::Pass);
    in_time("the end", async { tokio::join!(first, second) }).await;
    assert_eq!(observer.look().await.held, 0);
}
