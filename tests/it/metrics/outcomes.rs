//! Tests that each request has one outcome, and counts once.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use redis_semaphore::{Error, Semaphore, SemaphoreClient, acquire_all};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::counted::Counted;
use test_support::observer::{Observer, eventually, in_time};
use test_support::server::{shared_url, unique_name};

struct Scene {
    counted: Counted,
    client: SemaphoreClient,
    semaphore: Semaphore,
    observer: Observer,
    name: String,
}

impl Scene {
    async fn set(limit: u32) -> Self {
        let (counted, name, url) = (Counted::here(), unique_name(), shared_url());
        let client = SemaphoreClient::connect(&url).await.unwrap();
        let semaphore = client.semaphore(&name).limit(limit).build().unwrap();
        let observer = Observer::new(&url, &name, limit).await;
        Self { counted, client, semaphore, observer, name }
    }

    #[track_caller]
    fn assert_outcomes(&self, outcomes: &[(&str, u32)]) {
        let wanted: BTreeMap<_, _> = outcomes
            .iter()
            .map(|(outcome, count)| (outcome.to_string(), f64::from(*count)))
            .collect();
        assert_eq!(self.counted.outcomes(&self.name), wanted);
    }

    fn waiting(&self) -> f64 {
        self.counted.of(&self.name, "queued")
    }

    fn waits(&self) -> f64 {
        self.counted.of(&self.name, "wait_seconds_count")
    }
}

#[tokio::test]
async fn grants_count_as_immediate_or_waited() {
    let scene = Scene::set(1).await;
    let first = scene.semaphore.acquire().await.unwrap();
    scene.assert_outcomes(&[("immediate", 1)]);
    let next = tokio::spawn(scene.semaphore.request().acquire());
    eventually("one waits", async || scene.waiting(), |waiting| *waiting == 1.0).await;
    scene.assert_outcomes(&[("immediate", 1)]);
    assert_eq!(scene.waits(), 0.0);
    first.release().await.unwrap();
    let next = in_time("its turn", next).await.unwrap().unwrap();
    scene.assert_outcomes(&[("immediate", 1), ("waited", 1)]);
    assert_eq!((scene.waiting(), scene.waits()), (0.0, 1.0));
    next.release().await.unwrap();
    scene.semaphore.try_acquire().await.unwrap().unwrap().release().await.unwrap();
    scene.assert_outcomes(&[("immediate", 2), ("waited", 1)]);
}

#[tokio::test]
async fn requests_without_a_permit_count_as_no_permit_timeout_or_failed() {
    let scene = Scene::set(1).await;
    let held = scene.semaphore.acquire().await.unwrap();
    assert!(scene.semaphore.try_acquire().await.unwrap().is_none());
    scene.assert_outcomes(&[("immediate", 1), ("no_permit", 1)]);
    let late = scene.semaphore.acquire_timeout(Duration::from_millis(20)).await;
    assert!(matches!(late, Err(Error::Timeout { .. })));
    scene.assert_outcomes(&[("immediate", 1), ("no_permit", 1), ("timeout", 1)]);
    let heavy = scene.semaphore.acquire_many(2).await;
    assert!(matches!(heavy, Err(Error::TooHeavy { .. })));
    scene.assert_outcomes(&[("failed", 1), ("immediate", 1), ("no_permit", 1), ("timeout", 1)]);
    assert_eq!((scene.waiting(), scene.waits()), (0.0, 0.0));
    held.release().await.unwrap();
}

#[tokio::test]
async fn requests_that_were_never_sent_do_not_count() {
    let scene = Scene::set(1).await;
    drop(scene.semaphore.acquire());
    drop(scene.semaphore.request().acquire());
    assert!(matches!(scene.semaphore.acquire_many(0).await, Err(Error::Invalid { .. })));
    let hasty = scene.semaphore.request().head_start(Duration::MAX).acquire().await;
    assert!(matches!(hasty, Err(Error::Invalid { .. })));
    scene.assert_outcomes(&[]);
}

#[tokio::test]
async fn requests_dropped_before_the_reply_or_in_the_queue_count_as_cancelled() {
    let scene = Scene::set(1).await;
    // The request is dropped before the reply.
    assert!(scene.semaphore.acquire().now_or_never().is_none());
    scene.assert_outcomes(&[("cancelled", 1)]);
    scene.observer.sees(0, 0).await;
    // The request is dropped while it is queued.
    let held = scene.semaphore.acquire().await.unwrap();
    {
        let mut waiting = pin!(scene.semaphore.acquire());
        let poll = async || {
            assert!(waiting.as_mut().now_or_never().is_none());
            scene.waiting()
        };
        eventually("it waits", poll, |waiting| *waiting == 1.0).await;
    }
    assert_eq!(scene.waiting(), 0.0);
    scene.assert_outcomes(&[("cancelled", 2), ("immediate", 1)]);
    held.release().await.unwrap();
}

#[tokio::test]
async fn requests_ended_by_close_or_shutdown_count_as_closed() {
    let scene = Scene::set(1).await;
    let held = scene.semaphore.acquire().await.unwrap();
    let waiting = tokio::spawn(scene.semaphore.request().acquire());
    eventually("one waits", async || scene.waiting(), |waiting| *waiting == 1.0).await;
    scene.semaphore.close();
    in_time("the end of the wait", waiting).await.unwrap().unwrap_err();
    scene.semaphore.try_acquire().await.unwrap_err();
    scene.assert_outcomes(&[("closed", 2), ("immediate", 1)]);

    let other = scene.client.semaphore(&scene.name).limit(1).build().unwrap();
    let waiting = tokio::spawn(other.request().acquire());
    eventually("one waits", async || scene.waiting(), |waiting| *waiting == 1.0).await;
    scene.client.shutdown().await;
    in_time("the end of the wait", waiting).await.unwrap().unwrap_err();
    other.request().acquire().await.unwrap_err();
    scene.assert_outcomes(&[("closed", 4), ("immediate", 1)]);
    assert_eq!(scene.waiting(), 0.0);
    drop(held);
}

#[tokio::test]
async fn acquire_all_counts_one_outcome_for_each_request() {
    let scene = Scene::set(1).await;
    // With this name, the semaphore is the first in the order of keys.
    let first = format!("a-{}", scene.name);
    let other = scene.client.semaphore(&first).limit(1).build().unwrap();
    let both = || [scene.semaphore.request(), other.request()];
    let permits = acquire_all(both()).await.unwrap();
    scene.assert_outcomes(&[("immediate", 1)]);
    assert_eq!(scene.counted.outcomes(&first)["immediate"], 1.0);
    permits.release().await.unwrap();

    // The first request is granted. Its permit is released when the other request times out.
    let held = scene.semaphore.acquire().await.unwrap();
    let late = acquire_all(both().map(|request| request.timeout(Duration::from_secs(3)))).await;
    assert!(matches!(late, Err(Error::Timeout { semaphore, .. }) if semaphore == scene.name));
    scene.assert_outcomes(&[("immediate", 2), ("timeout", 1)]);
    let of_first = scene.counted.outcomes(&first);
    assert_eq!((of_first["immediate"], of_first.len()), (2.0, 1));
    drop(held);
    let held = async || [&scene.name, &first].map(|name| scene.counted.of(name, "held"));
    eventually("all released", held, |held| *held == [0.0; 2]).await;
}

/// Several events may end a request at the same time, but each request has only one outcome.
#[tokio::test]
async fn a_request_with_racing_ends_counts_once() {
    const TASKS: u64 = 8;
    const TURNS: u64 = 100;
    let scene = Scene::set(2).await;
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (semaphore, mut random) = (scene.semaphore.clone(), fastrand::Rng::with_seed(task));
        tasks.spawn(async move {
            let mut granted = 0;
            for _ in 0..TURNS {
                let patience = Duration::from_micros(random.u64(0..3000));
                // `timeout` polls the acquire at least once, so each turn sends a request.
                let dropped = timeout(patience, semaphore.acquire()).await;
                if let Ok(permit) = dropped {
                    granted += 1;
                    let permit = permit.unwrap();
                    tokio::time::sleep(Duration::from_micros(random.u64(0..500))).await;
                    if random.bool() { drop(permit) } else { permit.release().await.unwrap() }
                }
            }
            granted
        });
    }
    let granted: u64 = in_time("the end", tasks.join_all()).await.into_iter().sum();
    let outcomes = scene.counted.outcomes(&scene.name);
    let of = |outcome: &str| outcomes.get(outcome).copied().unwrap_or_default() as u64;
    println!("{outcomes:?}");
    assert_eq!(of("immediate") + of("waited"), granted);
    assert_eq!(of("cancelled"), TASKS * TURNS - granted);
    let ended = scene.counted.held_waiting_ended_lost(&scene.name);
    assert_eq!(ended, [0.0, 0.0, granted as f64, 0.0]);
    assert_eq!(scene.waits(), of("waited") as f64);
}
