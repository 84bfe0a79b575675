//! Tests that a permit counts as held from the moment at which a call returns the permit until the
//! permit ends, and that each loss counts once.

use std::time::Duration;

use redis_semaphore::{DetachedPermit, Error, Semaphore, SemaphoreClient};

use super::counted::Counted;
use test_support::observer::{eventually, in_time};
use test_support::proxy::{Flow, Proxy};
use test_support::server::{Server, shared_url, unique_name};

async fn build(name: &str) -> Semaphore {
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    client.semaphore(name).limit(9).build().unwrap()
}

#[tokio::test]
async fn each_way_to_end_a_permit_counts_once() {
    let (counted, name) = (Counted::here(), unique_name());
    let semaphore = build(&name).await;
    let held = async |ended: u32| {
        let permit = semaphore.acquire_many(3).await.unwrap();
        let now = counted.held_waiting_ended_lost(&name);
        assert_eq!(now, [3.0, 0.0, f64::from(ended), 0.0]);
        permit
    };
    held(0).await.release().await.unwrap();
    drop(held(1).await);
    drop(held(2).await.release());
    held(3).await.let_expire().await.unwrap();
    let panicked = held(4).await;
    let panicked = tokio::spawn(async move {
        let _permit = panicked;
        std::panic::panic_any("on purpose");
    });
    panicked.await.unwrap_err();
    let permit = held(5).await;
    permit.refresh().await.unwrap();
    let _parts: DetachedPermit = permit.detach();
    assert_eq!(counted.held_waiting_ended_lost(&name), [0.0, 0.0, 6.0, 0.0]);
    // The permit is refreshed from now on, although no variable holds it.
    std::mem::forget(semaphore.acquire().await.unwrap());
    assert_eq!(counted.held_waiting_ended_lost(&name), [1.0, 0.0, 6.0, 0.0]);
}

#[tokio::test]
async fn a_forgotten_permit_counts_as_ended() {
    let (counted, name) = (Counted::here(), unique_name());
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let semaphore = client.semaphore(&name).initial_permits(1).build().unwrap();
    semaphore.acquire().await.unwrap().forget().await.unwrap();
    assert_eq!(counted.held_waiting_ended_lost(&name), [0.0, 0.0, 1.0, 0.0]);
}

#[tokio::test]
async fn an_adopted_permit_counts_as_held_and_has_its_own_outcome() {
    let (counted, name) = (Counted::here(), unique_name());
    let (here, there) = (build(&name).await, build(&name).await);
    let detached = here.acquire_many(2).await.unwrap().detach();
    let permit = there.adopt(detached.clone()).await.unwrap();
    assert_eq!(counted.held_waiting_ended_lost(&name), [2.0, 0.0, 1.0, 0.0]);
    assert!(matches!(there.adopt(detached).await, Err(Error::Lost { .. })));
    permit.release().await.unwrap();
    let outcomes = counted.outcomes(&name);
    let [immediate, adopted, failed] = ["immediate", "adopted", "failed"].map(|it| outcomes[it]);
    assert_eq!((immediate, adopted, failed, outcomes.len()), (1.0, 1.0, 1.0, 3));
    assert_eq!(counted.held_waiting_ended_lost(&name), [0.0, 0.0, 2.0, 0.0]);
}

#[tokio::test]
async fn a_loss_counts_when_the_deadline_passes_and_never_again() {
    let server = Server::start();
    let (counted, proxy) = (Counted::here(), Proxy::start(server.port).await);
    let lease = Duration::from_millis(500);
    let client = SemaphoreClient::connect(&proxy.url()).await.unwrap();
    let semaphore = client.semaphore("cut").limit(2).lease(lease).build().unwrap();
    let [released, dropped] = [semaphore.acquire().await, semaphore.acquire().await];
    let (released, dropped) = (released.unwrap(), dropped.unwrap());
    proxy.refuse_connections(true);
    proxy.cut_all();
    // The losses are counted although no call uses the permits.
    let lost = async || counted.held_waiting_ended_lost("cut");
    eventually("both are lost", lost, |now| *now == [0.0, 0.0, 2.0, 2.0]).await;
    assert!(counted.of("cut", "refresh_failures_total") >= 1.0);
    proxy.refuse_connections(false);
    in_time("the loss", released.lost()).await;
    assert!(matches!(released.refresh().await, Err(Error::Lost { .. })));
    assert!(matches!(released.release().await, Err(Error::Lost { .. })));
    drop(dropped);
    assert_eq!(counted.held_waiting_ended_lost("cut"), [0.0, 0.0, 2.0, 2.0]);
}

#[tokio::test]
async fn a_loss_that_a_call_finds_counts_once() {
    let (counted, name) = (Counted::here(), unique_name());
    let semaphore = build(&name).await;
    let [released, refreshed, left] = [(); 3].map(|()| semaphore.acquire());
    let (released, refreshed) = (released.await.unwrap(), refreshed.await.unwrap());
    let left = left.await.unwrap();
    for permit in [&released, &refreshed, &left] {
        semaphore.revoke(permit.id()).await.unwrap();
    }
    assert!(matches!(released.release().await, Err(Error::Lost { .. })));
    assert_eq!(counted.held_waiting_ended_lost(&name), [2.0, 0.0, 1.0, 1.0]);
    assert!(matches!(refreshed.refresh().await, Err(Error::Lost { .. })));
    assert_eq!(counted.held_waiting_ended_lost(&name), [1.0, 0.0, 2.0, 2.0]);
    drop(refreshed);
    assert!(matches!(left.let_expire().await, Err(Error::Lost { .. })));
    assert_eq!(counted.held_waiting_ended_lost(&name), [0.0, 0.0, 3.0, 3.0]);
}

/// The permit is detached and adopted while its refresh is under way. The refresh still uses the
/// old ID, which the server no longer knows.
#[tokio::test]
async fn a_permit_that_is_detached_during_its_refresh_does_not_count_as_lost() {
    let server = Server::start();
    let (counted, proxy) = (Counted::here(), Proxy::start(server.port).await);
    let build = async |url: String, lease: u64| {
        let lease = Duration::from_secs(lease);
        let client = SemaphoreClient::connect(&url).await.unwrap();
        client.semaphore("moves").limit(1).lease(lease).build().unwrap()
    };
    // The adopted permit has a lease of 600 s, so it is not refreshed during the test.
    let (here, there) = (build(proxy.url(), 9).await, build(server.url(), 600).await);
    let permit = here.acquire().await.unwrap();
    let watch = permit.watch();
    proxy.commands(Flow::Hold);
    eventually("a refresh is under way", async || proxy.held_requests(), |held| *held > 0).await;
    let adopted = there.adopt(permit.detach()).await.unwrap();
    proxy.commands(Flow::Pass);
    let refresh = [("script", "refresh"), ("outcome", "succeeded")];
    let answered = async || counted.get("call_seconds_count", &refresh);
    // The adoption also calls `refresh`.
    eventually("the reply to the refresh", answered, |calls| *calls >= 2.0).await;
    assert!(!watch.is_held() && !watch.is_lost());
    adopted.release().await.unwrap();
    assert_eq!(counted.held_waiting_ended_lost("moves"), [0.0, 0.0, 2.0, 0.0]);
}

#[tokio::test]
async fn without_auto_refresh_a_loss_counts_once_the_permit_is_lost() {
    let (counted, name) = (Counted::here(), unique_name());
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let builder = client.semaphore(&name).limit(1).auto_refresh(false);
    let semaphore = builder.lease(Duration::from_secs(3)).build().unwrap();
    let permit = semaphore.acquire().await.unwrap();
    in_time("its end", permit.lost()).await;
    drop(permit);
    assert_eq!(counted.held_waiting_ended_lost(&name), [0.0, 0.0, 1.0, 1.0]);
}

#[test]
fn a_permit_dropped_after_its_runtime_is_subtracted_from_the_gauge() {
    let (counted, name) = (Counted::here(), unique_name());
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let permit = runtime.block_on(async { build(&name).await.acquire().await.unwrap() });
    drop(runtime);
    assert_eq!(counted.of(&name, "held"), 1.0);
    drop(permit);
    assert_eq!(counted.held_waiting_ended_lost(&name), [0.0, 0.0, 1.0, 0.0]);
}

#[test]
fn the_blocking_api_counts_permits_and_outcomes() {
    let (counted, name) = (Counted::here(), unique_name());
    let client = redis_semaphore::blocking::SemaphoreClient::connect(&shared_url()).unwrap();
    let semaphore = client.semaphore(&name).limit(1).build().unwrap();
    let permit = semaphore.acquire().unwrap();
    assert!(semaphore.try_acquire().unwrap().is_none());
    assert_eq!(counted.held_waiting_ended_lost(&name), [1.0, 0.0, 0.0, 0.0]);
    permit.release().unwrap();
    assert_eq!(counted.held_waiting_ended_lost(&name), [0.0, 0.0, 1.0, 0.0]);
    assert_eq!(counted.outcomes(&name).into_values().collect::<Vec<_>>(), [1.0, 1.0]);
    client.shutdown().unwrap();
}
