//! Tests of background work that does not depend on callers: refreshes, heartbeats and releases.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use redis::Value;
use redis_semaphore::{Error, SemaphoreClient};

use test_support::observer::{Observer, connected, eventually, in_time, passed};
use test_support::proxy::{Flow, Proxy};
use test_support::server::{Server, shared_url, unique_name};

/// Waits are dropped while the semaphore sends their heartbeats. The release of a dropped wait is
/// sent when the heartbeat has ended, and must affect no other ID of the same call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_that_end_at_any_moment_keep_no_permit_and_no_request() {
    let (url, name) = (shared_url(), unique_name());
    let observer = Observer::new(&url, &name, 5).await;
    let builder = SemaphoreClient::builder().heartbeat_timeout(Duration::from_millis(100));
    let client = builder.connect(&url).await.unwrap();
    let semaphore = client.semaphore(&name).limit(5).build().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..40_u64 {
        let semaphore = semaphore.clone();
        tasks.spawn(async move {
            for turn in 0..150 {
                let patience = Duration::from_micros((task * 7919 + turn * 104_729) % 40_000);
                match semaphore.acquire_timeout(patience).await {
                    Ok(permit) => drop(permit),
                    Err(Error::Timeout { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
    }
    in_time("the last task", tasks.join_all()).await;
    observer.sees(0, 0).await;
}

/// If the dropped wait stayed in the queue, the server could grant a permit to it. That permit
/// would stay taken for one lease.
#[tokio::test]
async fn a_wait_dropped_in_an_outage_longer_than_its_lease_leaves_the_queue() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let observer = Observer::new(&server.url(), "left", 1).await;
    let elsewhere = SemaphoreClient::connect(&server.url()).await.unwrap();
    let _holder = elsewhere.semaphore("left").limit(1).build().unwrap().acquire().await.unwrap();
    let builder = SemaphoreClient::builder().heartbeat_timeout(Duration::from_secs(300));
    let builder = builder.response_timeout(Duration::from_millis(100));
    let client = connected(builder, &proxy.url()).await;
    let lease = Duration::from_secs(1);
    let semaphore = client.semaphore("left").limit(1).lease(lease).build().unwrap();
    let waiting = tokio::spawn(semaphore.request().acquire());
    observer.sees(1, 1).await;
    proxy.refuse_connections(true);
    proxy.cut_all();
    waiting.abort();
    // This time is longer than the sum of two times: the lease of the dropped wait, and the time
    // for the last attempts.
    passed(Instant::now() + lease * 3).await;
    proxy.refuse_connections(false);
    observer.sees(1, 0).await;
}

#[tokio::test]
async fn maximum_durations_cause_no_panic() {
    let (url, name) = (shared_url(), unique_name());
    let builder = SemaphoreClient::builder().outage_tolerance(Duration::MAX);
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let builder = builder.heartbeat_timeout(Duration::from_millis(300));
    let client = builder.connect(&proxy.url()).await.unwrap();
    let semaphore = client.semaphore(&name).limit(1).max_hold(Duration::MAX).build().unwrap();
    let holder = semaphore.acquire().await.unwrap();
    let waiting = tokio::spawn(semaphore.request().acquire());
    let observer = Observer::new(&server.url(), &name, 1).await;
    observer.sees(1, 1).await;
    proxy.refuse_connections(true);
    proxy.cut_all();
    let refused = async || proxy.refused();
    eventually("heartbeats that fail", refused, |refused| *refused > 5).await;
    proxy.refuse_connections(false);
    holder.release().await.unwrap();
    in_time("its turn", waiting).await.unwrap().unwrap().release().await.unwrap();

    let refused = SemaphoreClient::builder().response_timeout(Duration::MAX).connect(&url).await;
    assert!(matches!(refused, Err(Error::Invalid { what: "response_timeout", .. })));
    let client = SemaphoreClient::connect(&url).await.unwrap();
    let semaphore = client.semaphore(&name).limit(1).build().unwrap();
    semaphore.acquire_timeout(Duration::MAX).await.unwrap().release().await.unwrap();
}

/// Many semaphores wait in one process, and Redis stops replying. All waits end in time and
/// together.
#[tokio::test]
async fn waits_of_many_semaphores_end_together_in_an_outage() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let direct = SemaphoreClient::connect(&server.url()).await.unwrap();
    let client = SemaphoreClient::builder()
        .heartbeat_timeout(Duration::from_millis(300))
        .response_timeout(Duration::from_millis(500))
        .outage_tolerance(Duration::from_secs(5))
        .connect(&proxy.url())
        .await
        .unwrap();
    let (mut holders, mut waits) = (Vec::new(), tokio::task::JoinSet::new());
    for number in 0..50 {
        let name = format!("wait-{number}");
        holders.push(direct.semaphore(&name).limit(1).build().unwrap().acquire().await.unwrap());
        let semaphore = client.semaphore(&name).limit(1).build().unwrap();
        let observer = direct.semaphore(&name).limit(1).build().unwrap();
        waits.spawn(async move { semaphore.acquire().await });
        let queued = async || observer.inspect().await.unwrap().queued;
        eventually("it waits", queued, |queued| *queued == 1).await;
    }
    proxy.replies(Flow::Swallow);
    // If the waits ended one after the other, they would need 25 seconds.
    let ended = in_time("the end of all waits", waits.join_all()).await;
    assert!(ended.iter().all(|wait| matches!(wait, Err(Error::Unavailable { .. }))));
}

/// A refresh without a reply takes longer than a short lease. Other refreshes must not wait for
/// that refresh.
#[tokio::test]
async fn a_refresh_without_a_reply_does_not_cause_the_loss_of_other_permits() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    // A refresh is retried for two response timeouts.
    let builder = SemaphoreClient::builder().response_timeout(Duration::from_secs(6));
    let client = builder.connect(&proxy.url()).await.unwrap();
    let lease = Duration::from_secs(6);
    let semaphore = client.semaphore("hang").limit(9).lease(lease).build().unwrap();
    let permits = [semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap()];
    let asked = semaphore.acquire().await.unwrap();
    proxy.requests(Flow::Swallow);
    let mut refresh = Box::pin(asked.refresh());
    let since = Instant::now();
    tokio::select! {
        _ = &mut refresh => {}
        () = passed(since + lease / 3) => {} // A refresh was due.
    }
    proxy.requests(Flow::Pass);
    passed(since + lease * 2).await;
    for permit in permits {
        assert!(!permit.is_lost());
        permit.release().await.unwrap();
    }
}

/// The future of a `try_acquire` is not polled while its permit's lease expires.
#[tokio::test]
async fn an_unpolled_try_acquire_returns_a_held_permit_after_its_lease_expired() {
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let lease = Duration::from_millis(100);
    let semaphore = client.semaphore(unique_name()).limit(1).lease(lease).build().unwrap();
    semaphore.acquire().await.unwrap().release().await.unwrap();
    let last_token = async || semaphore.inspect().await.unwrap().last_token;
    let before = last_token().await;
    let mut left = Box::pin(semaphore.try_acquire());
    tokio::select! {
        biased;
        _ = &mut left => panic!("Redis cannot have replied yet"),
        () = std::future::ready(()) => {}
    }
    eventually("it is granted", last_token, |token| *token > before).await;
    // Without a refresh, the lease has expired now.
    passed(Instant::now() + lease).await;
    let permit = left.await.unwrap().unwrap();
    assert!(!permit.is_lost());
}

/// A runtime may end while releases are under way. The background tasks must not treat the end of a
/// runtime as a panic.
#[test]
fn the_end_of_a_runtime_with_releases_under_way_causes_no_panic() {
    static PANICS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let is_ours = info.location().is_some_and(|place| place.file().starts_with("src/"));
        PANICS.fetch_add(usize::from(is_ours), std::sync::atomic::Ordering::Relaxed);
        before(info);
    }));
    for _ in 0..200 {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
            let semaphore = client.semaphore(unique_name()).limit(100).build().unwrap();
            for _ in 0..20 {
                drop(semaphore.acquire().await.unwrap());
            }
        });
    }
    assert_eq!(PANICS.load(std::sync::atomic::Ordering::Relaxed), 0);
}

/// A heartbeat may reach the server late, after its request was granted and the permit was lost.
/// The heartbeat must neither restore the permit for long nor keep the process's connections open.
#[tokio::test]
async fn a_late_heartbeat_restores_no_permit_and_keeps_no_subscription() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let observer = Observer::new(&server.url(), "late", 1).await;
    // The lease is so long that the permit need not be refreshed before it is returned.
    let lease = Duration::from_secs(9);
    let client = SemaphoreClient::builder()
        .response_timeout(Duration::from_secs(1))
        .heartbeat_timeout(Duration::from_millis(1500));
    let client = client.connect(&proxy.url()).await.unwrap();
    let semaphore = client.semaphore("late").limit(1).lease(lease).build().unwrap();
    let elsewhere = SemaphoreClient::connect(&server.url()).await.unwrap();
    let held = elsewhere.semaphore("late").limit(1).build().unwrap().acquire().await.unwrap();
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await }
    });
    observer.sees(1, 1).await;
    proxy.commands(Flow::Hold);
    let out = async || proxy.held_requests();
    eventually("a heartbeat", out, |out| *out > 0).await;
    held.release().await.unwrap();
    let permit = in_time("the permit", waiting).await.unwrap().unwrap();
    in_time("the loss", permit.lost()).await;
    observer.sees(0, 0).await;
    let before = observer.look().await.last_token;
    proxy.commands(Flow::Pass);
    let token = async || observer.look().await.last_token;
    eventually("the arrival of the heartbeat", token, |token| *token > before).await;
    observer.sees(0, 0).await;
    drop((permit, semaphore, client));
    let listeners = async || {
        let mut pubsub = redis::cmd("PUBSUB");
        let channels: Vec<String> =
            pubsub.arg("CHANNELS").arg("sem:wake:*").query(&mut server.connect()).unwrap();
        channels.len()
    };
    // The remaining channels are those of the observer and of the other process.
    eventually("its channel is gone", listeners, |channels| *channels == 2).await;
}

/// The user lacks a right for some time.
#[tokio::test]
async fn rejected_releases_and_forgets_are_retried_in_the_background() {
    let server = Server::start();
    let client = SemaphoreClient::connect(&server.url()).await.unwrap();
    let semaphore = client.semaphore("refused").initial_permits(3).build().unwrap();
    let observer = Observer::new(&server.admin_url(), "refused", 3).await;
    let (dropped, used_up) =
        (semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap());
    server.grant("-zrem");
    drop(dropped);
    let refused = used_up.forget().await.unwrap_err();
    assert!(matches!(refused, Error::Rejected { .. }), "{refused}");
    let refusals = async || {
        let log: Vec<HashMap<String, Value>> =
            redis::cmd("ACL").arg("LOG").query(&mut server.connect()).unwrap();
        log.iter().map(|entry| redis::from_redis_value_ref::<u64>(&entry["count"]).unwrap()).sum()
    };
    eventually("all retried", refusals, |count: &u64| *count > 6).await;
    observer.sees(2, 0).await;
    server.grant("+zrem");
    assert_eq!(observer.sees(0, 0).await.limit, 2);
}

/// Without the queue and the state, and with an earlier clock, the server does not accept the old
/// tickets. The server numbers the requests in their order in the call.
#[tokio::test]
async fn requests_keep_their_order_if_the_queue_is_lost_and_the_clock_is_set_back() {
    let server = Server::start();
    let builder = SemaphoreClient::builder().heartbeat_timeout(Duration::from_secs(3));
    let client = builder.connect(&server.url()).await.unwrap();
    let observer = Observer::new(&server.url(), "order", 1).await;
    let semaphore = client.semaphore("order").limit(1).build().unwrap();
    let _holder = semaphore.acquire().await.unwrap();
    let mut waits = tokio::task::JoinSet::new();
    for number in 1..=8 {
        waits.spawn(semaphore.request().acquire());
        observer.sees(1, number).await;
    }
    let queue = || -> Vec<String> {
        let mut range = redis::cmd("ZRANGE");
        range.arg(&["sem:{order}:queue", "0", "-1"]).query(&mut server.connect()).unwrap()
    };
    let before = queue();
    server.clock.run_ahead_by(-3_600_000_000);
    let lost = ["sem:{order}:queue", "sem:{order}:state"];
    redis::cmd("DEL").arg(&lost).exec(&mut server.connect()).unwrap();
    eventually("all requests are sent again", async || queue().len(), |length| *length == 8).await;
    assert_eq!(queue(), before);
}
