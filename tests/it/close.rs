//! One semaphore is closed: nobody acquires by it any more, and nothing else changes.

use std::time::{Duration, Instant};

use redis_semaphore::{Error, Permit, Semaphores};
use tokio::task::JoinSet;

use crate::support::observer::{Observer, eventually, in_time};
use crate::support::proxy::{Flow, Proxy};
use crate::support::server::{Server, shared_url, unique_name};

fn assert_closed<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert!(matches!(result, Err(Error::Closed { .. })), "{result:?}");
}

#[tokio::test]
async fn waits_end_and_what_is_held_stays() {
    let (url, name) = (shared_url(), unique_name());
    let observer = Observer::new(&url, &name, 2).await;
    let lease = Duration::from_millis(900);
    let semaphores = Semaphores::connect(&url).await.unwrap();
    let build = || semaphores.semaphore(&name).limit(2).lease(lease).build().unwrap();
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
    // It can still be looked at.
    assert_eq!(semaphore.inspect().await.unwrap().held, 2);

    let started = Instant::now();
    let elapsed = async || started.elapsed();
    eventually("a lease has passed", elapsed, |elapsed| *elapsed > lease * 2).await;
    assert!(!held.is_lost());
    held.release().await.unwrap();
    let next = in_time("the other's turn", other_wait).await.unwrap().unwrap();
    next.release().await.unwrap();
    build().acquire().await.unwrap().release().await.unwrap();
    observer.sees(0, 0).await;
}

/// They end at once, though no answer comes, and what the server makes of them is undone.
#[tokio::test]
async fn requests_under_way_end_and_leave_nothing() {
    for flow in [Flow::Hold, Flow::Swallow] {
        let server = Server::start();
        let proxy = Proxy::start(server.port).await;
        let observer = Observer::new(&server.url(), "closed", 3).await;
        let connect = Semaphores::builder().response_timeout(Duration::from_millis(500));
        let semaphores = connect.connect(&proxy.url()).await.unwrap();
        let semaphore = semaphores.semaphore("closed").limit(3).build().unwrap();
        semaphore.acquire().await.unwrap().release().await.unwrap();
        proxy.replies(flow);
        let mut requests = JoinSet::new();
        // Room for one of them; another one queues.
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
        eventually("more are under way", held, |held| *held > 0).await;
        semaphore.close();
        for ended in in_time("the end of the requests", requests.join_all()).await {
            assert_closed(ended);
        }
        proxy.requests(Flow::Pass);
        proxy.replies(Flow::Pass);
        observer.sees(0, 0).await;
    }
}

/// Each ends with a permit that the server knows of, or with the error and nothing held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_any_moment() {
    let (url, name) = (shared_url(), unique_name());
    let observer = Observer::new(&url, &name, 20).await;
    let semaphores = Semaphores::connect(&url).await.unwrap();
    for round in 0..20 {
        let semaphore = semaphores.semaphore(&name).limit(20).build().unwrap();
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
