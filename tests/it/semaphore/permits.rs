//! Tests of permits that are refreshed, lost, or dropped. Drops also happen outside a runtime.

use std::future::poll_fn;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use redis::cmd;
use redis_semaphore::{Error, Permit, Semaphore, SemaphoreClient};

use test_support::observer::{Observer, eventually, in_time, passed};
use test_support::proxy::{Flow, Proxy};
use test_support::scripts::keys_of;
use test_support::server::{Server, shared_url, unique_name};

#[test]
fn public_types_are_send_sync_and_static() {
    fn check<T: Send + Sync + 'static>() {}
    check::<SemaphoreClient>();
    check::<Semaphore>();
    check::<redis_semaphore::AcquireRequest>();
    check::<Permit>();
    check::<redis_semaphore::DetachedPermit>();
    check::<redis_semaphore::PermitWatch>();
    check::<redis_semaphore::Permits>();
    check::<redis_semaphore::Error>();
    check::<redis_semaphore::ScriptRegistry>();
}

#[test]
fn a_watch_may_cross_the_boundary_of_catch_unwind() {
    fn check<T: UnwindSafe + RefUnwindSafe>() {}
    check::<redis_semaphore::PermitWatch>();
}

#[tokio::test]
async fn a_permit_is_lost_at_its_deadline_while_redis_is_unreachable() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let lease = Duration::from_millis(500);
    let client = SemaphoreClient::connect(&proxy.url()).await.unwrap();
    let semaphore = client.semaphore("cut").limit(1).lease(lease).build().unwrap();
    let permit = semaphore.acquire().await.unwrap();
    proxy.refuse_connections(true);
    proxy.cut_all();
    let left = permit.expires_in();
    let started = Instant::now();
    in_time("the loss", permit.lost()).await;
    assert!(started.elapsed() >= left.saturating_sub(Duration::from_millis(1)));
    assert!(permit.is_lost());
    assert_eq!(permit.expires_in(), Duration::ZERO);
    // After the connection is restored, the permit stays lost.
    proxy.refuse_connections(false);
    assert!(matches!(permit.refresh().await, Err(Error::Lost { .. })));
    in_time("the loss", permit.lost()).await;
    let id = permit.id().to_owned();
    let error = permit.release().await.unwrap_err();
    let text = error.to_string();
    let Error::Lost { semaphore, operation, id: lost, .. } = error else {
        panic!("{error}");
    };
    assert_eq!((&*semaphore, operation, lost), ("cut", "release", id));
    assert!(text.contains("release failed, because the permit"), "{text}");
}

/// The holder finds out about the loss at a refresh, long before the deadline.
#[tokio::test]
async fn a_permit_is_lost_before_its_deadline_if_the_server_restarts_empty() {
    let mut server = Server::start();
    let client = SemaphoreClient::connect(&server.url()).await.unwrap();
    let lease = Duration::from_secs(9);
    let semaphore = client.semaphore("forgotten").limit(1).lease(lease).build().unwrap();
    let permit = semaphore.acquire().await.unwrap();
    let deadline = Instant::now() + permit.expires_in();
    server.restart_empty();
    in_time("the loss", permit.lost()).await;
    assert!(Instant::now() < deadline);
    assert!(semaphore.try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn a_permit_survives_a_short_outage() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let client = SemaphoreClient::connect(&proxy.url()).await.unwrap();
    let lease = Duration::from_secs(3);
    let semaphore = client.semaphore("outage").limit(1).lease(lease).build().unwrap();
    let permit = semaphore.acquire().await.unwrap();
    proxy.refuse_connections(true);
    proxy.cut_all();
    let left = || async { permit.expires_in() };
    eventually("a refresh was missed", left, |left| *left < lease / 2).await;
    proxy.refuse_connections(false);
    eventually("refreshed again", left, |left| *left > lease / 2).await;
    permit.release().await.unwrap();
}

#[tokio::test]
async fn a_permit_without_auto_refresh_is_lost_after_its_last_refresh() {
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let lease = Duration::from_secs(3);
    let semaphore =
        client.semaphore(unique_name()).limit(1).lease(lease).auto_refresh(false).build().unwrap();
    let permit = semaphore.acquire().await.unwrap();
    permit.refresh().await.unwrap();
    in_time("the loss", permit.lost()).await;
    assert!(matches!(permit.refresh().await, Err(Error::Lost { .. })));
    let next = semaphore.acquire().await.unwrap();
    assert!(next.fencing_token() > permit.fencing_token());
    // The release of the lost permit does not affect other permits.
    assert!(matches!(permit.release().await, Err(Error::Lost { .. })));
    next.release().await.unwrap();
}

/// The reply to a call of `refresh` is read after the reply to a later automatic refresh.
#[tokio::test]
async fn an_older_refresh_reply_does_not_shorten_a_newer_lease() {
    let lease = Duration::from_millis(1500);
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let semaphore = client.semaphore(unique_name()).limit(1).lease(lease).build().unwrap();
    let permit = semaphore.acquire().await.unwrap();
    let mut by_hand = pin!(permit.refresh());
    let first = poll_fn(|context| Poll::Ready(by_hand.as_mut().poll(context))).await;
    assert!(first.is_pending(), "no reply arrives immediately");
    let sent = Instant::now();
    let ends = async || Instant::now() + permit.expires_in();
    let is_newer = |ends: &Instant| *ends > sent + lease;
    let promised = eventually("refreshed in the background", ends, is_newer).await;
    by_hand.await.unwrap();
    // The clock is read twice, so the test allows a millisecond.
    assert!(ends().await + Duration::from_millis(1) >= promised, "the lease has become shorter");
}

/// If a release is never polled, its permit is free when the lease expires.
#[tokio::test]
async fn a_permit_is_not_refreshed_while_its_release_is_never_polled() {
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let builder = client.semaphore(unique_name()).limit(1);
    let semaphore = builder.lease(Duration::from_millis(500)).build().unwrap();
    let _never_polled = semaphore.acquire().await.unwrap().release();
    drop(in_time("the next permit", semaphore.acquire()).await.unwrap());
}

#[tokio::test]
async fn max_hold_ends_a_permit_despite_automatic_refreshes() {
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let max_hold = Duration::from_millis(700);
    let semaphore = client
        .semaphore(unique_name())
        .limit(1)
        .lease(Duration::from_millis(300))
        .max_hold(max_hold)
        .build()
        .unwrap();
    let started = Instant::now();
    let permit = semaphore.acquire().await.unwrap();
    in_time("the loss", permit.lost()).await;
    let held = started.elapsed();
    assert!(held >= max_hold - Duration::from_millis(300), "{held:?}");
    assert!(matches!(permit.refresh().await, Err(Error::Lost { .. })));
    // The server grants to the next request while the first caller still has its permit.
    semaphore.acquire().await.unwrap().release().await.unwrap();
}

/// The remaining time was computed for the first attempt, but a later attempt succeeds.
#[tokio::test]
async fn a_retried_refresh_does_not_exceed_max_hold() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let client = SemaphoreClient::connect(&proxy.url()).await.unwrap();
    let max_hold = Duration::from_secs(600);
    let semaphore = client.semaphore("held").limit(1).lease(max_hold).max_hold(max_hold);
    let permit = semaphore.build().unwrap().acquire().await.unwrap();
    let granted = Instant::now();
    proxy.requests(Flow::Swallow);
    let refreshed = async {
        let swallowed = async || proxy.swallowed_requests();
        eventually("the first attempt", swallowed, |count| *count > 0).await;
        proxy.requests(Flow::Pass);
        proxy.cut_commands();
    };
    let (refreshed, ()) = tokio::join!(permit.refresh(), refreshed);
    refreshed.unwrap();
    let held = granted.elapsed();
    assert!(permit.expires_in() <= max_hold - held, "{:?} after {held:?}", permit.expires_in());
    permit.release().await.unwrap();
}

#[test]
fn a_permit_can_be_dropped_outside_a_runtime_or_after_the_runtime_ended() {
    let (url, name) = (shared_url(), unique_name());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (semaphore, observer, outside, late) = runtime.block_on(async {
        let observer = Observer::new(&url, &name, 2).await;
        let client = SemaphoreClient::connect(&url).await.unwrap();
        let semaphore =
            client.semaphore(&name).limit(2).lease(Duration::from_secs(600)).build().unwrap();
        let permits = (semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap());
        (semaphore, observer, permits.0, permits.1)
    });
    drop(outside);
    runtime.block_on(observer.sees(1, 0));
    drop(runtime);
    // The I/O runtime has ended, so the permit is released over a separate connection.
    drop(late);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let refused = semaphore.acquire().await;
        assert!(matches!(refused, Err(redis_semaphore::Error::Shutdown)), "{refused:?}");
        let observer = Observer::new(&url, &name, 2).await;
        observer.sees(0, 0).await;
    });
}

/// The permits are used in another runtime.
#[test]
fn a_release_after_the_end_of_the_io_runtime_takes_effect() {
    let (url, name) = (shared_url(), unique_name());
    let home = tokio::runtime::Runtime::new().unwrap();
    let (held, released) = home.block_on(async {
        let client = SemaphoreClient::connect(&url).await.unwrap();
        let builder = client.semaphore(&name).limit(2).lease(Duration::from_secs(600));
        let semaphore = builder.build().unwrap();
        (semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap())
    });
    drop(home);
    let guest = tokio::runtime::Runtime::new().unwrap();
    guest.block_on(async {
        let observer = Observer::new(&url, &name, 2).await;
        observer.sees(2, 0).await;
        let refused = released.release().await;
        assert!(matches!(refused, Err(Error::Shutdown)), "{refused:?}");
        observer.sees(1, 0).await;
        let refused = held.refresh().await;
        assert!(matches!(refused, Err(Error::Shutdown)), "{refused:?}");
        assert!(!held.is_lost());
        in_time("the loss", held.lost()).await;
        assert!(held.is_lost());
        drop(held);
        observer.sees(0, 0).await;
    });
}

#[tokio::test]
async fn ten_thousand_permits_are_refreshed_and_released_with_few_calls() {
    let server = Server::start();
    let client = SemaphoreClient::connect(&server.url()).await.unwrap();
    let lease = Duration::from_secs(3);
    let semaphore = client.semaphore("many").limit(10_000).lease(lease).build().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let semaphore = semaphore.clone();
        tasks.spawn(async move {
            let mut permits = Vec::new();
            for _ in 0..1_000 {
                permits.push(semaphore.acquire().await.unwrap());
            }
            permits
        });
    }
    let permits = tasks.join_all().await.into_iter().flatten().collect::<Vec<_>>();
    redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut server.connect()).unwrap();
    let started = Instant::now();
    // If the lease had not been refreshed, it would have expired at this moment.
    passed(started + lease).await;
    let intervals = started.elapsed().as_secs_f64() / (lease / 3).as_secs_f64();
    let per_interval = server.calls("evalsha") as f64 / intervals.ceil();
    println!("{per_interval} calls per interval");
    assert!(per_interval <= 20.0, "{per_interval} calls per interval");
    assert!(permits.iter().all(|permit| !permit.is_lost()));

    let observer = Observer::new(&server.url(), "many", 10_000).await;
    let (before, mut looks) = (server.calls("evalsha"), 0);
    drop(permits);
    let look = async || {
        looks += 1;
        observer.look().await.held
    };
    eventually("all released", look, |held| *held == 0).await;
    let calls = server.calls("evalsha") - before - looks;
    println!("{calls} calls to release them");
    assert!(calls <= 200, "{calls} calls");
}

/// On a slow network, successive round trips may take as long as a lease.
#[tokio::test]
async fn thousands_of_permits_are_refreshed_without_waiting_for_replies() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let client = SemaphoreClient::connect(&proxy.url()).await.unwrap();
    let lease = Duration::from_secs(15);
    let semaphore = client.semaphore("far").limit(3_000).lease(lease).build().unwrap();
    let permits = (0..3_000).map(|_| semaphore.acquire());
    let permits = futures_util::future::try_join_all(permits).await.unwrap();
    proxy.replies(Flow::Hold);
    let (mut connection, key) = (server.connect(), keys_of("far").swap_remove(0));
    let last: Vec<(String, i64)> =
        cmd("ZREVRANGE").arg(&key).arg(&["0", "0", "WITHSCORES"]).query(&mut connection).unwrap();
    let refreshed = async || -> usize {
        cmd("ZCOUNT").arg(&key).arg(last[0].1 + 1).arg("+inf").query(&mut connection).unwrap()
    };
    eventually("all refreshed", refreshed, |refreshed| *refreshed == permits.len()).await;
    proxy.replies(Flow::Pass);
}

/// The grant message takes most of the lease to arrive. The permit must not be returned as if its
/// lease were new.
#[tokio::test]
async fn a_late_message_does_not_lengthen_the_lease() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let lease = Duration::from_secs(1);
    let client = SemaphoreClient::connect(&proxy.url()).await.unwrap();
    let semaphore = client.semaphore("late").limit(1).lease(lease).build().unwrap();
    let observer = Observer::new(&server.url(), "late", 1).await;
    let holder = semaphore.acquire().await.unwrap();
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await.unwrap() }
    });
    observer.sees(1, 1).await;
    proxy.messages(Flow::Hold);
    holder.release().await.unwrap();
    // The granted permit has expired on the server, but the waiter has not found out yet.
    observer.sees(0, 0).await;
    proxy.messages(Flow::Pass);
    let permit = waiting.await.unwrap();
    // The waiter sent its request again, and holds the permit on the server, too.
    assert!(!permit.is_lost());
    assert_eq!(observer.look().await.holders[0].id, permit.id());
    permit.release().await.unwrap();
}

/// The permits of a semaphore that is sometimes idle are refreshed no more often than the permits
/// of a busy semaphore.
#[tokio::test]
async fn repeated_short_holds_do_not_increase_the_refresh_rate() {
    let server = Server::start();
    let client = SemaphoreClient::connect(&server.url()).await.unwrap();
    let lease = Duration::from_secs(3);
    let semaphore = client.semaphore("short").limit(1).lease(lease).build().unwrap();
    for _ in 0..3 {
        let permit = semaphore.acquire().await.unwrap();
        permit.release().await.unwrap();
        // The pause is longer than the interval between refreshes.
        passed(Instant::now() + lease / 2).await;
    }
    let permit = semaphore.acquire().await.unwrap();
    redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut server.connect()).unwrap();
    let started = Instant::now();
    passed(started + lease).await;
    let intervals = started.elapsed().as_secs_f64() / (lease / 3).as_secs_f64();
    let per_interval = server.calls("evalsha") as f64 / intervals.ceil();
    assert!(per_interval <= 1.5, "{per_interval} calls per interval");
    permit.release().await.unwrap();
}

/// The background jobs end with the I/O runtime. After that end, a wait in another runtime must not
/// hang, and a permit that is dropped in that other runtime is released.
#[test]
fn a_wait_in_another_runtime_ends_with_the_io_runtime() {
    let (url, name) = (shared_url(), unique_name());
    let home = tokio::runtime::Runtime::new().unwrap();
    let guest = tokio::runtime::Runtime::new().unwrap();
    let semaphore = home.block_on(async {
        let client = SemaphoreClient::connect(&url).await.unwrap();
        client.semaphore(&name).limit(1).build().unwrap()
    });
    let (observer, waiting) = guest.block_on(async {
        let observer = Observer::new(&url, &name, 1).await;
        let _permit = semaphore.acquire().await.unwrap();
        let waiting = tokio::spawn({
            let semaphore = semaphore.clone();
            async move { semaphore.acquire().await }
        });
        observer.sees(1, 1).await;
        home.shutdown_background();
        let ended = in_time("the end of the wait", waiting).await.unwrap();
        (observer, ended)
    });
    assert!(matches!(waiting, Err(redis_semaphore::Error::Shutdown)), "{waiting:?}");
    guest.block_on(observer.sees(0, 0));
}

#[tokio::test]
async fn a_forget_dropped_before_its_first_poll_takes_effect() {
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let tickets = client.semaphore(unique_name()).initial_permits(2).build().unwrap();
    drop(tickets.acquire().await.unwrap().forget());
    let limit = async || tickets.limit().await.unwrap();
    eventually("the limit is lower", limit, |limit| *limit == 1).await;
    tickets.clear_limit().await.unwrap();
}
