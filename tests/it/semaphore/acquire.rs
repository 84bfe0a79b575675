//! Tests of acquiring: order, weights, `try_acquire`, limits, and the cost in calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redis_semaphore::{Error, Semaphore, SemaphoreClient};
use tokio::sync::mpsc;

use test_support::observer::{Observer, in_time};
use test_support::server::{Server, shared_url, unique_name};

async fn semaphore(limit: u32) -> (Semaphore, Observer) {
    let (url, name) = (shared_url(), unique_name());
    let observer = Observer::new(&url, &name, limit).await;
    let client = SemaphoreClient::connect(&url).await.unwrap();
    (client.semaphore(name).limit(limit).build().unwrap(), observer)
}

#[tokio::test]
async fn fencing_tokens_increase_and_permits_match_the_inspection() {
    let (semaphore, observer) = semaphore(3).await;
    let mut last = 0;
    for weight in [1, 3, 2, 1] {
        let permit = semaphore.acquire_many(weight).await.unwrap();
        assert!(permit.fencing_token() > last);
        last = permit.fencing_token();
        assert_eq!(permit.weight(), weight);
        assert!(permit.expires_in() > Duration::from_secs(20) && !permit.is_lost());
        let now = observer.sees(weight.into(), 0).await;
        assert_eq!(now.holders[0].id, permit.id());
        assert_eq!(now.holders[0].weight, weight);
        assert_eq!(now.last_token, last);
        let (client_name, client) = (now.holders[0].client_name(), now.holders[0].client());
        assert!(client_name.ends_with(&format!(".{}", std::process::id())), "{client_name}");
        assert!(client.starts_with(&format!("{client_name}.")), "{client}");
        assert!(permit.id().starts_with(&format!("P:{client}:{weight}:30000:")), "{permit:?}");
        permit.release().await.unwrap();
    }
}

/// The semaphore's acquire timeout applies, unless the request sets its own timeout or calls
/// `without_timeout`.
#[tokio::test]
async fn a_request_can_set_its_own_weight_and_timeout() {
    let (url, name) = (shared_url(), unique_name());
    let observer = Observer::new(&url, &name, 4).await;
    let client = SemaphoreClient::connect(&url).await.unwrap();
    let hasty = Duration::from_millis(30);
    let builder = || client.semaphore(&name).limit(4);
    let (semaphore, hasty) =
        (builder().build().unwrap(), builder().acquire_timeout(hasty).build().unwrap());
    let held = semaphore.request().weight(3).acquire().await.unwrap();
    assert_eq!(held.weight(), 3);
    let one = semaphore.request().try_acquire().await.unwrap().unwrap();
    assert_eq!(one.weight(), 1);
    one.release().await.unwrap();
    assert!(semaphore.request().weight(2).try_acquire().await.unwrap().is_none());
    for weight in [0, 5] {
        let of_weight = || semaphore.request().weight(weight);
        let (refused, tried) = (of_weight().acquire().await, of_weight().try_acquire().await);
        let [refused, tried] = [refused.unwrap_err(), tried.unwrap_err()];
        let is_right = |error: &Error| match weight {
            0 => matches!(error, Error::Invalid { what: "weight", .. }),
            _ => matches!(error, Error::TooHeavy { weight: 5, limit: 4, .. }),
        };
        assert!(is_right(&refused) && is_right(&tried), "{refused}, {tried}");
    }

    let short = Duration::from_millis(20);
    for late in [hasty.request(), semaphore.request().without_timeout().timeout(short)] {
        let refused = in_time("a timeout", late.weight(2).acquire()).await;
        assert!(matches!(refused, Err(Error::Timeout { .. })), "{refused:?}");
        observer.sees(3, 0).await;
    }
    let patient = tokio::spawn(hasty.request().weight(2).without_timeout().acquire());
    let long = tokio::spawn(hasty.request().weight(2).timeout(Duration::MAX).acquire());
    observer.sees(3, 2).await;
    // This request uses the semaphore's timeout. The timeouts of the waiting requests do not affect
    // this request.
    let refused = in_time("a timeout", hasty.acquire_many(2)).await;
    assert!(matches!(refused, Err(Error::Timeout { .. })), "{refused:?}");
    held.release().await.unwrap();
    for waited in [patient, long] {
        in_time("its turn", waited).await.unwrap().unwrap().release().await.unwrap();
    }
}

/// The waiters use several connections, like several processes.
#[tokio::test]
async fn waiters_are_granted_permits_in_the_order_of_arrival() {
    let (semaphore, observer) = semaphore(1).await;
    let holder = semaphore.acquire().await.unwrap();
    let (order, mut served) = mpsc::unbounded_channel();
    for number in 0..20_u64 {
        let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
        let mine = client.semaphore(semaphore.name()).limit(1).build().unwrap();
        let order = order.clone();
        tokio::spawn(async move {
            let permit = mine.acquire().await.unwrap();
            order.send(number).unwrap();
            permit.release().await.unwrap();
        });
        observer.sees(1, number + 1).await;
    }
    let now = observer.look().await;
    let positions: Vec<u64> = now.waiters.iter().map(|waiter| waiter.position).collect();
    assert_eq!(positions, (1..=20).collect::<Vec<_>>());
    holder.release().await.unwrap();
    for number in 0..20 {
        assert_eq!(in_time("the next waiter", served.recv()).await, Some(number));
    }
    observer.sees(0, 0).await;
}

#[tokio::test]
async fn later_requests_and_try_acquire_do_not_overtake_a_heavy_request() {
    let (semaphore, observer) = semaphore(4).await;
    let mut light = Vec::new();
    for _ in 0..3 {
        light.push(semaphore.acquire().await.unwrap());
    }
    let heavy = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire_many(4).await.unwrap() }
    });
    observer.sees(3, 1).await;
    // One permit is free, but later requests must not overtake the heavy request.
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    let late = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await.unwrap() }
    });
    observer.sees(3, 2).await;
    for permit in light {
        permit.release().await.unwrap();
    }
    let heavy = in_time("the heavy request", heavy).await.unwrap();
    observer.sees(4, 1).await;
    heavy.release().await.unwrap();
    late.await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn many_tasks_never_hold_more_than_the_limit() {
    let (semaphore, observer) = semaphore(5).await;
    let inside = Arc::new(AtomicU32::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..200 {
        let (semaphore, inside) = (semaphore.clone(), inside.clone());
        tasks.spawn(async move {
            let weight = number % 3 + 1;
            let permit = semaphore.acquire_many(weight).await.unwrap();
            let now = inside.fetch_add(weight, Ordering::SeqCst) + weight;
            tokio::task::yield_now().await;
            inside.fetch_sub(weight, Ordering::SeqCst);
            match number % 2 {
                0 => permit.release().await.unwrap(),
                _ => drop(permit),
            }
            now
        });
    }
    let most = in_time("the last task", tasks.join_all()).await.into_iter().max();
    assert!(most <= Some(5), "{most:?}");
    observer.sees(0, 0).await;
}

/// If the client released a rejected request, the server would reject the release, too, and the
/// retries of the release would delay a shutdown.
#[tokio::test]
async fn a_rejected_request_is_not_released() {
    let server = Server::start();
    let client = SemaphoreClient::connect(&server.url()).await.unwrap();
    let semaphore = client.semaphore("text").limit(1).build().unwrap();
    let set = ["sem:{text}:permits", "text"];
    redis::cmd("SET").arg(&set).exec(&mut server.connect()).unwrap();
    let before: u64 = server.calls("evalsha");
    for refused in [
        semaphore.try_acquire().await.map(drop),
        semaphore.acquire().await.map(drop),
        semaphore.acquire_many(2).await.map(drop),
    ] {
        assert!(matches!(refused, Err(Error::Rejected { .. })), "{refused:?}");
    }
    let heavy = client.semaphore("light").limit(1).build().unwrap();
    let refused = heavy.acquire_many(2).await;
    assert!(matches!(refused, Err(Error::TooHeavy { .. })), "{refused:?}");
    client.shutdown().await;
    assert_eq!(server.calls("evalsha") - before, 4);
}

#[tokio::test]
async fn the_limit_can_be_changed_while_permits_are_held_and_requests_wait() {
    let (semaphore, observer) = semaphore(2).await;
    let both = semaphore.acquire_many(2).await.unwrap();
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire_many(3).await }
    });
    assert!(matches!(waiting.await.unwrap(), Err(Error::TooHeavy { weight: 3, limit: 2, .. })));
    assert_eq!(semaphore.set_limit(0).await.unwrap(), 2);
    // The request is heavier than the declared limit, but with a runtime limit it may wait.
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire_many(3).await.unwrap() }
    });
    observer.sees(2, 1).await;
    assert_eq!(semaphore.available_permits().await.unwrap(), 0);
    assert_eq!(semaphore.add_permits(4).await.unwrap(), 4);
    both.release().await.unwrap();
    let three = in_time("the waiter", waiting).await.unwrap();
    assert_eq!(semaphore.limit().await.unwrap(), 4);
    assert_eq!(semaphore.clear_limit().await.unwrap(), 2);
    three.release().await.unwrap();
}

/// A request waits because of a runtime limit. After that limit is cleared, the request must not
/// block the queue, and it gets an error.
#[tokio::test]
async fn a_waiter_that_became_too_heavy_fails_and_the_next_waiter_is_granted() {
    let (semaphore, observer) = semaphore(2).await;
    semaphore.set_limit(5).await.unwrap();
    let all = semaphore.acquire_many(5).await.unwrap();
    let [heavy, light] = [4, 1].map(|weight| {
        let semaphore = semaphore.clone();
        (weight, async move { semaphore.acquire_many(weight).await })
    });
    let heavy = tokio::spawn(heavy.1);
    observer.sees(5, 1).await;
    let light = tokio::spawn(light.1);
    observer.sees(5, 2).await;
    semaphore.clear_limit().await.unwrap();
    all.release().await.unwrap();
    assert!(matches!(heavy.await.unwrap(), Err(Error::TooHeavy { weight: 4, limit: 2, .. })));
    light.await.unwrap().unwrap().release().await.unwrap();
    observer.sees(0, 0).await;
}

#[tokio::test]
async fn permits_added_by_one_client_are_consumed_by_another_client() {
    let (url, name) = (shared_url(), unique_name());
    let [producer, consumer] = [
        SemaphoreClient::connect(&url).await.unwrap(),
        SemaphoreClient::connect(&url).await.unwrap(),
    ];
    let signals = producer.semaphore(&name).initial_permits(0).build().unwrap();
    let waits = consumer.semaphore(&name).initial_permits(0).build().unwrap();
    let consumed = tokio::spawn(async move {
        for _ in 0..10 {
            waits.acquire().await.unwrap().forget().await.unwrap();
        }
        waits
    });
    for _ in 0..5 {
        signals.add_permits(2).await.unwrap();
    }
    let waits = in_time("the consumer", consumed).await.unwrap();
    assert_eq!(waits.available_permits().await.unwrap(), 0);
    assert!(waits.try_acquire().await.unwrap().is_none());
    signals.clear_limit().await.unwrap();
}

#[tokio::test]
async fn the_newest_declaration_is_in_force() {
    let (url, name) = (shared_url(), unique_name());
    let client = SemaphoreClient::connect(&url).await.unwrap();
    let old = client.semaphore(&name).limit(2).build().unwrap();
    drop(old.acquire().await.unwrap());
    let new = client.semaphore(&name).limit(7).build().unwrap();
    // Read-only calls declare nothing.
    assert_eq!((new.limit().await.unwrap(), new.inspect().await.unwrap().limit), (2, 2));
    drop(new.acquire().await.unwrap());
    assert_eq!(old.limit().await.unwrap(), 7);
    assert!(old.try_acquire_many(7).await.unwrap().is_some());
}

#[tokio::test]
async fn a_contended_acquire_and_release_costs_two_calls() {
    let server = Server::start();
    let client = SemaphoreClient::connect(&server.url()).await.unwrap();
    let semaphore = client.semaphore("contended").limit(4).build().unwrap();
    semaphore.acquire().await.unwrap().release().await.unwrap();
    redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut server.connect()).unwrap();
    let (waiters, turns) = (64, 20);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..waiters {
        let semaphore = semaphore.clone();
        tasks.spawn(async move {
            for _ in 0..turns {
                let permit = semaphore.acquire().await.unwrap();
                // Other requests can queue here.
                tokio::task::yield_now().await;
                permit.release().await.unwrap();
            }
        });
    }
    in_time("the last task", tasks.join_all()).await;
    let per_turn = server.calls("evalsha") as f64 / f64::from(waiters * turns);
    println!("{per_turn} script calls per acquire and release");
    assert!(per_turn <= 2.2, "{per_turn} calls per acquire and release");
}

#[tokio::test]
async fn a_client_uses_two_connections_for_any_number_of_waits() {
    let server = Server::start();
    let clients = || {
        let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut server.connect()).unwrap();
        // The list also contains this connection.
        list.lines().count() - 1
    };
    let client = SemaphoreClient::connect(&server.url()).await.unwrap();
    let observer = Observer::new(&server.url(), "busy", 1).await;
    // The client and the observer have two connections each.
    assert_eq!(clients(), 4);
    let semaphore = client.semaphore("busy").limit(1).build().unwrap();
    let _holder = semaphore.acquire().await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..500 {
        let semaphore = semaphore.clone();
        tasks.spawn(async move { semaphore.acquire().await });
    }
    observer.sees(1, 500).await;
    assert_eq!(clients(), 4);
}
