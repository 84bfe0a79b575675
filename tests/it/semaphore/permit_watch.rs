//! Tests that a `PermitWatch` reports every way in which a permit ends, and keeps nothing alive.

use std::time::{Duration, Instant};

use futures_util::{FutureExt, poll};
use redis_semaphore::{Error, Permit, PermitWatch, SemaphoreClient, acquire_all};

use test_support::errors::unless_lost;
use test_support::observer::{Observer, eventually, in_time, passed, refreshed};
use test_support::proxy::Proxy;
use test_support::server::{Server, shared_url, unique_name};

#[tokio::test]
async fn a_permit_is_refreshed_while_only_its_watch_is_awaited() {
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let lease = Duration::from_secs(3);
    let semaphore = client.semaphore(unique_name()).limit(1).lease(lease).build().unwrap();
    let permit = semaphore.acquire().await.unwrap();
    let watch = permit.watch();
    tokio::select! {
        () = watch.ended() => panic!("it is held"),
        () = refreshed(&permit) => {}
    }
    assert!(watch.is_held() && !watch.is_lost());
    permit.release().await.unwrap();
}

/// Each watch waits in its own task, and nothing polls the permit.
#[tokio::test]
async fn a_watch_reports_the_loss_while_redis_is_unreachable() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let lease = Duration::from_millis(500);
    let client = SemaphoreClient::connect(&proxy.url()).await.unwrap();
    let semaphore = client.semaphore("cut").limit(1).lease(lease).build().unwrap();
    let permit = semaphore.acquire().await.unwrap();
    let watch = permit.watch();
    let subtasks: Vec<_> = std::iter::repeat_with(|| watch.clone())
        .take(10)
        .map(|watch| {
            tokio::spawn(async move {
                watch.ended().await;
                watch.is_lost()
            })
        })
        .collect();
    proxy.refuse_connections(true);
    proxy.cut_all();
    for subtask in subtasks {
        assert!(in_time("the loss", subtask).await.unwrap());
    }
    assert!(!watch.is_held() && permit.is_lost());
    drop(permit);
    assert!(watch.is_lost(), "the permit was lost before it was dropped");
}

/// A watch that was created before a refresh uses the new deadline. Dropping a future of the watch
/// has no effect.
#[tokio::test]
async fn a_watch_uses_the_new_deadline_after_a_refresh() {
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let lease = Duration::from_secs(3);
    let builder = client.semaphore(unique_name()).limit(1).lease(lease).auto_refresh(false);
    let permit = builder.build().unwrap().acquire().await.unwrap();
    let watch = permit.watch();
    let first_end = Instant::now() + permit.expires_in();
    tokio::select! {
        biased;
        () = watch.ended() => panic!("it is held"),
        refreshed = permit.refresh() => refreshed.unwrap(),
    }
    in_time("the end", watch.ended()).await;
    assert!(Instant::now() > first_end);
    assert!(watch.is_lost());
}

async fn ends_unlost(end: impl AsyncFnOnce(Permit)) {
    let (url, name) = (shared_url(), unique_name());
    let observer = Observer::new(&url, &name, 2).await;
    let client = SemaphoreClient::connect(&url).await.unwrap();
    let lease = Duration::from_millis(300);
    let builder = client.semaphore(&name).limit(2).lease(lease).auto_refresh(false);
    let permit = builder.build().unwrap().acquire().await.unwrap();
    let watch = permit.watch();
    let subtask = tokio::spawn({
        let watch = watch.clone();
        async move { watch.ended().await }
    });
    let deadline = Instant::now() + permit.expires_in();
    end(permit).await;
    let is_in_time = Instant::now() < deadline;
    assert!(!watch.is_held());
    in_time("the end", subtask).await.unwrap();
    // The permit has ended, so the expiry of its lease is no loss. If the machine stood still,
    // however, the permit may have been lost before it ended.
    passed(deadline).await;
    assert!(!watch.is_lost() || !is_in_time);
    observer.sees(0, 0).await;
}

#[tokio::test]
async fn a_watch_of_a_released_permit_has_ended_and_is_not_lost() {
    ends_unlost(async |permit| unless_lost(permit.release().await)).await;
    ends_unlost(async |permit| unless_lost(permit.forget().await)).await;
    ends_unlost(async |permit| drop(permit)).await;
}

#[tokio::test]
async fn a_watch_reports_a_loss_that_the_release_detects() {
    let server = Server::start();
    let client = SemaphoreClient::connect(&server.url()).await.unwrap();
    let builder = client.semaphore("flushed").limit(1).auto_refresh(false);
    let permit = builder.build().unwrap().acquire().await.unwrap();
    let watch = permit.watch();
    redis::cmd("FLUSHALL").exec(&mut server.connect()).unwrap();
    assert!(watch.is_held());
    assert!(matches!(permit.release().await, Err(Error::Lost { .. })));
    assert!(!watch.is_held() && watch.is_lost());
}

/// As in a frozen process, no timer runs until the leases have expired.
#[tokio::test]
async fn waits_for_a_loss_end_at_their_first_poll_after_a_freeze() {
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let short = |name| {
        let builder = client.semaphore(name).limit(1).auto_refresh(false);
        builder.lease(Duration::from_secs(2)).build().unwrap()
    };
    let permit = short(unique_name()).acquire().await.unwrap();
    let permits = acquire_all([short(unique_name()).request()]).await.unwrap();
    let watch = permit.watch();
    let mut waits = [permit.lost().boxed(), watch.ended().boxed(), permits.lost().boxed()];
    for wait in &mut waits {
        assert!(poll!(wait).is_pending());
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while !permit.is_lost() || !permits.is_lost() {
        assert!(Instant::now() < deadline, "the leases do not expire");
        std::thread::sleep(Duration::from_millis(1));
    }
    for wait in &mut waits {
        assert!(poll!(wait).is_ready());
    }
}

#[tokio::test]
async fn a_watch_keeps_neither_the_permit_nor_connections_alive() {
    let server = Server::start();
    let observer = Observer::new(&server.url(), "kept", 1).await;
    let clients = async || {
        let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut server.connect()).unwrap();
        list.lines().count()
    };
    let before = clients().await;
    let watch: PermitWatch = {
        let client = SemaphoreClient::connect(&server.url()).await.unwrap();
        let semaphore = client.semaphore("kept").limit(1).build().unwrap();
        let permit = semaphore.acquire().await.unwrap();
        assert!(clients().await > before);
        permit.watch()
    };
    observer.sees(0, 0).await;
    eventually("all connections are closed", clients, |now| *now <= before).await;
    assert!(!watch.is_held());
}

/// The end is reported long before the expiry of the lease.
#[tokio::test]
async fn a_watch_reports_the_end_at_once_when_the_permit_is_dropped() {
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let builder = client.semaphore(unique_name()).limit(1).lease(Duration::from_secs(3600));
    let permit = builder.build().unwrap().acquire().await.unwrap();
    let watch = permit.watch();
    // The second future releases the permit after the first future has begun to wait.
    let ends = async { tokio::join!(biased; watch.ended(), async { drop(permit) }) };
    in_time("the end", ends).await;
}
