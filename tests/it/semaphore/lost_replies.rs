//! Tests of lost replies. The server has executed a call, but the reply is lost. The caller still
//! gets the result.

use std::time::Duration;

use redis_semaphore::{Error, Permit, Semaphore, SemaphoreClient};

use super::let_expire::{LONG, USED, use_up};
use test_support::observer::{Observer, eventually};
use test_support::proxy::{Flow, Proxy};
use test_support::server::{Server, unique_name};

struct Scene {
    server: Server,
    proxy: Proxy,
    client: SemaphoreClient,
    semaphore: Semaphore,
    observer: Observer,
}

impl Scene {
    async fn set() -> Self {
        let server = Server::start();
        let proxy = Proxy::start(server.port).await;
        let name = unique_name();
        let observer = Observer::new(&server.url(), &name, 2).await;
        let client = SemaphoreClient::builder()
            .response_timeout(Duration::from_secs(5))
            .connect(&proxy.url())
            .await
            .unwrap();
        let semaphore = client.semaphore(name).limit(2).lease(LONG).build().unwrap();
        semaphore.acquire().await.unwrap().release().await.unwrap();
        Self { server, proxy, client, semaphore, observer }
    }

    /// Runs a call whose first reply is lost. `done` returns when the server has executed the call.
    async fn lose_the_reply<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
        done: impl AsyncFnOnce(&Observer),
    ) -> T {
        self.proxy.replies(Flow::Swallow);
        let call = tokio::spawn(call);
        done(&self.observer).await;
        self.proxy.replies(Flow::Pass);
        self.proxy.cut_commands();
        call.await.unwrap()
    }

    async fn acquire_both(&self) -> Permit {
        self.semaphore.acquire_many(2).await.unwrap()
    }
}

#[tokio::test]
async fn a_granted_acquire_keeps_its_permit_after_a_lost_reply() {
    let scene = Scene::set().await;
    let semaphore = scene.semaphore.clone();
    let acquire = async move { semaphore.acquire().await.unwrap() };
    let permit = scene.lose_the_reply(acquire, async |seen| drop(seen.sees(1, 0).await)).await;
    assert_eq!(scene.observer.sees(1, 0).await.holders[0].id, permit.id());
    permit.release().await.unwrap();

    let semaphore = scene.semaphore.clone();
    let acquire = async move { semaphore.try_acquire_many(2).await.unwrap().unwrap() };
    let permit = scene.lose_the_reply(acquire, async |seen| drop(seen.sees(2, 0).await)).await;
    scene.observer.sees(2, 0).await;
    permit.release().await.unwrap();
    scene.observer.sees(0, 0).await;
}

#[tokio::test]
async fn a_queued_acquire_keeps_its_position_after_a_lost_reply() {
    let scene = Scene::set().await;
    let both = scene.acquire_both().await;
    let semaphore = scene.semaphore.clone();
    scene.proxy.replies(Flow::Swallow);
    let first = tokio::spawn(async move { semaphore.acquire_many(2).await.unwrap() });
    let queued = scene.observer.sees(2, 1).await;
    scene.proxy.replies(Flow::Pass);
    scene.proxy.cut_commands();
    let semaphore = scene.semaphore.clone();
    let second = tokio::spawn(async move { semaphore.acquire_many(2).await.unwrap() });
    // The request kept its position in front of the later request.
    let now = scene.observer.sees(2, 2).await;
    assert_eq!(now.waiters[0].id, queued.waiters[0].id);
    both.release().await.unwrap();
    first.await.unwrap().release().await.unwrap();
    second.await.unwrap().release().await.unwrap();
    scene.observer.sees(0, 0).await;
}

/// The retry of the release finds no permit, but the permit was held when the first call was sent.
/// Other permits are not affected.
#[tokio::test]
async fn a_release_succeeds_after_a_lost_reply() {
    let scene = Scene::set().await;
    let permit = scene.semaphore.acquire().await.unwrap();
    let kept = scene.semaphore.acquire().await.unwrap();
    let release = async move { permit.release().await };
    let response = scene.lose_the_reply(release, async |seen| drop(seen.sees(1, 0).await)).await;
    response.unwrap();
    assert_eq!(scene.observer.sees(1, 0).await.holders[0].id, kept.id());
    kept.release().await.unwrap();
}

#[tokio::test]
async fn a_refresh_succeeds_after_a_lost_reply() {
    let scene = Scene::set().await;
    let permit = scene.semaphore.acquire().await.unwrap();
    let left = async || scene.observer.look().await.holders[0].expires_in;
    let used = use_up(&scene.server, left).await;
    let refresh = async move {
        permit.refresh().await.unwrap();
        permit
    };
    let refreshed = async |seen: &Observer| {
        let left = async || seen.look().await.holders[0].expires_in;
        eventually("refreshed", left, |left| *left > used + USED).await;
    };
    let permit = scene.lose_the_reply(refresh, refreshed).await;
    permit.release().await.unwrap();
}

#[tokio::test]
async fn add_permits_counts_once_after_a_lost_reply() {
    let scene = Scene::set().await;
    let semaphore = scene.semaphore.clone();
    let add = async move { semaphore.add_permits(3).await.unwrap() };
    let added = async |seen: &Observer| {
        let limit = async || seen.look().await.limit;
        eventually("added", limit, |limit| *limit == 5).await;
    };
    assert_eq!(scene.lose_the_reply(add, added).await, 5);
    assert_eq!(scene.observer.look().await.limit, 5);
}

#[tokio::test]
async fn forget_counts_once_after_a_lost_reply() {
    let scene = Scene::set().await;
    let permit = scene.semaphore.acquire().await.unwrap();
    let forget = async move { permit.forget().await };
    let consumed = async |seen: &Observer| {
        let limit = async || seen.look().await.limit;
        eventually("consumed", limit, |limit| *limit == 1).await;
    };
    let response = scene.lose_the_reply(forget, consumed).await;
    response.unwrap();
    assert_eq!(scene.observer.look().await.limit, 1);
}

/// The first call never reaches the server, and the lease expires before the second call.
#[tokio::test]
async fn a_forget_that_is_too_late_is_no_success() {
    let scene = Scene::set().await;
    let lease = Duration::from_secs(2);
    let semaphore = scene.client.semaphore(scene.semaphore.name()).limit(2).lease(lease);
    let permit = semaphore.auto_refresh(false).build().unwrap().acquire().await.unwrap();
    scene.proxy.requests(Flow::Swallow);
    let forget = tokio::spawn(permit.forget());
    let swallowed = async || scene.proxy.swallowed_requests();
    eventually("the first call", swallowed, |swallowed| *swallowed > 0).await;
    scene.observer.sees(0, 0).await;
    scene.proxy.requests(Flow::Pass);
    scene.proxy.cut_commands();
    let error = forget.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    assert_eq!(scene.observer.look().await.limit, 2);
}
