//! Tests of head starts, which are a bounded priority.

use std::time::Duration;

use redis_semaphore::{Error, Semaphore, SemaphoreClient};
use tokio::sync::mpsc;

use test_support::observer::{Observer, eventually, in_time};
use test_support::server::{shared_url, unique_name};

const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(3);
const HOUR: Duration = Duration::from_secs(60 * 60);

/// Returns the semaphore over a separate connection, like a semaphore in another process.
async fn semaphore(name: &str) -> Semaphore {
    let client = SemaphoreClient::builder().heartbeat_timeout(HEARTBEAT_TIMEOUT);
    let client = client.connect(&shared_url()).await.unwrap();
    client.semaphore(name).limit(1).build().unwrap()
}

/// Starts to wait, and reports the grant.
async fn queue(
    semaphore: &Semaphore,
    who: &'static str,
    ahead: Duration,
    turns: &mpsc::UnboundedSender<&'static str>,
) {
    let before = semaphore.inspect().await.unwrap().queued;
    let (waits, turns) = (semaphore.request().head_start(ahead).acquire(), turns.clone());
    tokio::spawn(async move {
        let permit = waits.await.unwrap();
        turns.send(who).unwrap();
        permit.release().await.unwrap();
    });
    let queued = async || semaphore.inspect().await.unwrap().queued;
    eventually("it waits", queued, |queued| *queued > before).await;
}

/// The request overtakes requests of all processes that arrived less than its head start earlier,
/// and no other requests.
#[tokio::test]
async fn a_request_overtakes_only_requests_within_its_head_start() {
    let name = unique_name();
    let (one, other) = (semaphore(&name).await, semaphore(&name).await);
    let observer = Observer::new(&shared_url(), &name, 1).await;
    let (turns, mut order) = mpsc::unbounded_channel();
    let holder = one.acquire().await.unwrap();
    queue(&one, "first", Duration::ZERO, &turns).await;
    let waited = async || observer.look().await.waiters[0].waited;
    let long = Duration::from_millis(10);
    eventually("the first request has waited", waited, |waited| *waited > long).await;
    queue(&other, "a moment ahead", Duration::from_millis(1), &turns).await;
    queue(&one, "last", Duration::ZERO, &turns).await;
    queue(&other, "far ahead", HOUR, &turns).await;
    // The request with a head start of an hour is at the head, and its waiting time is short.
    let waited = async || observer.look().await.waiters[0].waited;
    assert!(waited().await < HOUR / 2);
    // After half of the heartbeat timeout, each client has sent a heartbeat, and all requests have
    // kept their positions.
    eventually("heartbeats of all clients", waited, |waited| *waited > HEARTBEAT_TIMEOUT / 2).await;
    holder.release().await.unwrap();
    for expected in ["far ahead", "first", "a moment ahead", "last"] {
        assert_eq!(in_time("the next turn", order.recv()).await, Some(expected));
    }
}

#[tokio::test]
async fn a_head_start_of_more_than_an_hour_is_rejected() {
    let semaphore = semaphore(&unique_name()).await;
    for ahead in [HOUR + Duration::from_nanos(1), Duration::MAX] {
        let request = || semaphore.request().head_start(ahead);
        let (waited, tried) =
            (request().acquire().await.err(), request().try_acquire().await.err());
        for refused in [waited, tried] {
            let is_refused = matches!(&refused, Some(Error::Invalid { what: "head_start", .. }));
            assert!(is_refused, "{ahead:?}: {refused:?}");
        }
    }
    semaphore.request().head_start(HOUR).acquire().await.unwrap().release().await.unwrap();
}
