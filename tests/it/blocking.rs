//! Tests of the blocking API.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use redis_semaphore::blocking::{Permit, Semaphore, SemaphoreClient, acquire_all};
use redis_semaphore::{Error, Revoked};

use test_support::child::{self, Process};
use test_support::observer::{Observer, eventually, in_time, until};
use test_support::scripts::keys_of;
use test_support::server::{connect, shared_admin_url, shared_url, unique_name};

async fn on_a_thread<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = tokio::sync::oneshot::channel();
    thread::spawn(move || done.send(run()).map_err(drop).expect("the test waits for it"));
    in_time("the thread", is_done).await.expect("it does not panic")
}

fn open(name: &str, limit: u32) -> (SemaphoreClient, Semaphore) {
    let client = SemaphoreClient::connect(&shared_url()).unwrap();
    let lease = Duration::from_secs(600);
    let semaphore = client.semaphore(name).limit(limit).lease(lease).build().unwrap();
    (client, semaphore)
}

fn assert_refused<T: std::fmt::Debug>(refused: Result<T, Error>) {
    assert!(matches!(refused, Err(Error::Invalid { what: "thread", .. })), "{refused:?}");
}

#[test]
fn threads_never_hold_more_permits_than_the_limit() {
    let name = unique_name();
    // The two semaphores use separate connections, as two processes do.
    let (all, one) = (open(&name, 3), open(&name, 3));
    let (inside, most, turns) = <(AtomicU32, AtomicU32, AtomicU32)>::default();
    thread::scope(|scope| {
        for semaphore in [&all.1, &one.1].into_iter().cycle().take(20) {
            scope.spawn(|| {
                for _ in 0..20 {
                    let permit = semaphore.acquire().unwrap();
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    turns.fetch_add(1, Ordering::SeqCst);
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    permit.release().unwrap();
                }
            });
        }
    });
    assert_eq!(turns.into_inner(), 400);
    assert!((1..=3).contains(&most.load(Ordering::SeqCst)), "{most:?}");
    assert_eq!(all.1.available_permits().unwrap(), 3);
}

#[test]
fn lost_blocks_the_thread_until_a_permit_is_lost() {
    let client = SemaphoreClient::connect(&shared_url()).unwrap();
    let [lasting, ended] = [600_000, 3_000].map(|ms| {
        let semaphore = client.semaphore(unique_name()).limit(3).auto_refresh(false);
        semaphore.lease(Duration::from_millis(ms)).build().unwrap()
    });
    let held = lasting.acquire().unwrap();
    assert!(!held.lost_timeout(Duration::from_millis(1)).unwrap());
    let lost = ended.acquire().unwrap();
    let one_lost = acquire_all([lasting.request(), ended.request()]).unwrap();
    lost.lost().unwrap();
    assert!(lost.is_lost() && lost.lost_timeout(Duration::MAX).unwrap());

    let held = acquire_all([lasting.request()]).unwrap();
    assert!(!held.lost_timeout(Duration::from_millis(1)).unwrap());
    one_lost.lost().unwrap();
    assert!(one_lost.is_lost() && one_lost.lost_timeout(Duration::MAX).unwrap());
    let none = acquire_all([]).unwrap();
    assert!(!none.lost_timeout(Duration::from_millis(1)).unwrap());
}

#[test]
fn blocking_calls_work_like_their_async_counterparts() {
    let name = unique_name();
    let (client, semaphore) = open(&name, 4);
    let three = semaphore.acquire_many(3).unwrap();
    assert_eq!((three.weight(), three.is_lost()), (3, false));
    assert!(three.expires_in() > Duration::from_secs(500) && three.watch().is_held());
    three.refresh().unwrap();
    assert!(semaphore.try_acquire_many(2).unwrap().is_none());
    let fourth = semaphore.acquire().unwrap();
    let refused = semaphore.acquire_timeout(Duration::from_millis(1));
    assert!(matches!(refused, Err(Error::Timeout { .. })), "{refused:?}");
    fourth.release().unwrap();
    semaphore.acquire_timeout(Duration::from_secs(60)).unwrap().release().unwrap();
    let heavy = semaphore.request().weight(4).timeout(Duration::ZERO).acquire();
    assert!(matches!(heavy, Err(Error::Timeout { .. })), "{heavy:?}");
    assert_eq!(semaphore.inspect().unwrap().holders[0].id, three.id());
    assert_eq!(semaphore.set_limit(9).unwrap(), 4);
    assert_eq!((semaphore.add_permits(1).unwrap(), semaphore.limit().unwrap()), (10, 10));
    assert_eq!(semaphore.clear_limit().unwrap(), 4);
    let adopted = semaphore.adopt(three.detach()).unwrap();
    assert_eq!(adopted.weight(), 3);
    adopted.refresh().unwrap();
    // The tests' user lacks the rights that `names` needs.
    let refused = client.names();
    assert!(matches!(&refused, Err(Error::Connect { right: Some(_), .. })), "{refused:?}");
    let revoked = semaphore.revoke(adopted.id()).unwrap();
    assert!(matches!(revoked, Revoked::Permit { .. }), "{revoked:?}");
    assert!(matches!(adopted.release(), Err(Error::Lost { .. })));
    semaphore.acquire().unwrap().let_expire().unwrap();
    assert_eq!(semaphore.inspect().unwrap().held, 1);
    assert!(client.doctor().unwrap().servers.len() == 1);
    client.shutdown().unwrap();
    assert!(matches!(semaphore.acquire(), Err(Error::Shutdown)));
}

#[test]
fn blocking_acquire_all_acquires_all_permits_or_none() {
    let names = [unique_name(), unique_name()];
    // The two semaphores use different connections.
    let [(_, one), (client, other)] = names.map(|name| open(&name, 2));
    let permits = acquire_all([other.request().weight(2), one.request()]).unwrap();
    let weights = permits.as_slice().iter().map(Permit::weight);
    assert_eq!(weights.collect::<Vec<_>>(), [2, 1], "in the order of the requests");
    assert_eq!((one.available_permits().unwrap(), other.available_permits().unwrap()), (1, 0));
    let second = acquire_all([one.request(), other.request().timeout(Duration::ZERO)]);
    assert!(matches!(second, Err(Error::Timeout { .. })), "{second:?}");
    assert!(!permits.is_lost());
    permits.release().unwrap();
    // If the timed-out request is granted, its permit is released in the background.
    until("both are free", || other.available_permits().unwrap() == 2);
    let twice = acquire_all([one.request(), one.request()]);
    assert!(matches!(twice, Err(Error::Invalid { what: "requests", .. })), "{twice:?}");
    let permits = acquire_all([one.request().weight(2), other.request()]).unwrap();
    other.revoke(permits.as_slice()[1].id()).unwrap();
    assert!(matches!(permits.release(), Err(Error::Lost { .. })));
    assert_eq!(one.available_permits().unwrap(), 2);
    acquire_all([]).unwrap().release().unwrap();
    client.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_call_on_an_async_thread_returns_an_error() {
    let name = unique_name();
    let observer = Observer::new(&shared_url(), &name, 2).await;
    assert_refused(SemaphoreClient::connect(&shared_url()));
    let its = name.clone();
    let (client, semaphore, permit, other) = on_a_thread(move || {
        let (client, semaphore) = open(&its, 2);
        let (permit, other) = (semaphore.acquire().unwrap(), semaphore.acquire().unwrap());
        (client, semaphore, permit, other)
    })
    .await;
    observer.sees(2, 0).await;
    // The first call runs in a task, and the other calls run within `block_on`.
    let its = semaphore.clone();
    assert_refused(tokio::spawn(async move { its.acquire() }).await.unwrap());
    assert_refused(semaphore.acquire());
    assert_refused(semaphore.try_acquire());
    assert_refused(acquire_all([semaphore.request()]));
    assert_refused(client.shutdown());
    assert_refused(permit.refresh());
    assert_refused(permit.lost_timeout(Duration::ZERO));
    assert_refused(acquire_all([]).unwrap().lost_timeout(Duration::ZERO));
    // Despite the error, the permit is released.
    assert_refused(permit.release());
    observer.sees(1, 0).await;

    // The call succeeds if Tokio allows blocking.
    tokio::task::block_in_place(|| other.release()).unwrap();
    let taken = tokio::task::spawn_blocking(move || semaphore.acquire().and_then(Permit::release));
    in_time("a thread for blocking", taken).await.unwrap().unwrap();
    observer.sees(0, 0).await;
}

#[tokio::test]
async fn a_blocking_connect_in_a_current_thread_runtime_returns_an_error() {
    assert_refused(SemaphoreClient::connect(&shared_url()));
    let connected = tokio::task::spawn_blocking(|| SemaphoreClient::connect(&shared_url()));
    connected.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_permit_is_released_when_it_is_dropped_after_its_client() {
    let name = unique_name();
    let observer = Observer::new(&shared_url(), &name, 1).await;
    let its = name.clone();
    let permit = on_a_thread(move || {
        let (_, semaphore) = open(&its, 1);
        semaphore.acquire().unwrap()
    })
    .await;
    // The permit alone keeps the background thread alive. That thread refreshes the lease.
    observer.sees(1, 0).await;
    drop(permit);
    observer.sees(0, 0).await;
}

fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let name = |task: &std::path::Path| std::fs::read_to_string(task.join("comm"));
    tasks.filter(|task| name(task).is_ok_and(|name| name == "redis-semaphore\n")).count()
}

/// This is not a test, but a separate process that counts its threads. In the process of the tests,
/// the count would include threads of other tests.
#[test]
fn child_process_counts_its_background_threads() {
    if child::role().is_none() {
        return;
    }
    let connected = SemaphoreClient::connect(&shared_url()).unwrap();
    assert_eq!(threads(), 1);
    drop(connected);
    until("its thread has ended", || threads() == 0);
    SemaphoreClient::connect("redis://127.0.0.1:1/").unwrap_err();
    until("its thread has ended", || threads() == 0);
    child::say("none is left");
}

#[tokio::test]
async fn the_background_thread_ends_after_a_drop_or_a_failed_connect() {
    let mut process = Process::start("blocking::child_process_counts_its_background_threads", "");
    assert_eq!(process.next().await.as_deref(), Some("none is left"));
}

#[tokio::test]
async fn a_wait_ends_when_the_semaphore_is_closed() {
    let name = unique_name();
    let observer = Observer::new(&shared_url(), &name, 1).await;
    let its = name.clone();
    let (semaphore, permit) = on_a_thread(move || {
        let (_, semaphore) = open(&its, 1);
        let permit = semaphore.acquire().unwrap();
        (semaphore, permit)
    })
    .await;
    let waiting = semaphore.clone();
    let wait = tokio::spawn(on_a_thread(move || waiting.acquire().map(drop)));
    observer.sees(1, 1).await;
    semaphore.close();
    let ended = wait.await.unwrap();
    assert!(matches!(ended, Err(Error::Closed { .. })), "{ended:?}");
    drop(permit);
    observer.sees(0, 0).await;
}

#[tokio::test]
async fn refresh_and_watch_report_a_lost_permit() {
    let name = unique_name();
    let its = name.clone();
    let permit = on_a_thread(move || open(&its, 1).1.acquire().unwrap()).await;
    let watch = permit.watch();
    redis::cmd("DEL").arg(&keys_of(&name)[0]).exec(&mut connect(&shared_admin_url())).unwrap();
    let refreshed = on_a_thread(move || (permit.refresh(), permit)).await;
    assert!(matches!(refreshed.0, Err(Error::Lost { .. })), "{:?}", refreshed.0);
    eventually("the loss", async || watch.is_lost(), |is_lost| *is_lost).await;
}

/// Only the end of the program's main thread shuts clients down.
#[test]
fn a_client_survives_the_end_of_a_thread_that_is_named_main() {
    let client = SemaphoreClient::connect(&shared_url()).unwrap();
    let semaphore = client.semaphore(unique_name()).limit(1).build().unwrap();
    let its = semaphore.clone();
    let named = thread::Builder::new().name("main".to_owned());
    named.spawn(move || drop(its.acquire().unwrap())).unwrap().join().unwrap();
    drop(semaphore.acquire().unwrap());
    client.shutdown().unwrap();
}
