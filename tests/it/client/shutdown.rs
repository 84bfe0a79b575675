//! Tests that no permit and no request remains on the server after a shutdown. The tests include
//! calls under way, and permits that are dropped after the shutdown.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, try_join_all};
use redis_semaphore::{Error, Permit, Semaphore, SemaphoreClient};

use test_support::observer::{Observer, in_time};
use test_support::proxy::{Flow, Proxy};
use test_support::server::{Server, shared_url, unique_name};

/// A semaphore with limit 1, on a server behind a proxy. The semaphore's leases are longer than any
/// test.
struct Scene {
    _server: Server,
    proxy: Proxy,
    observer: Observer,
    client: SemaphoreClient,
    semaphore: Semaphore,
}

impl Scene {
    async fn set() -> Self {
        let server = Server::start();
        let proxy = Proxy::start(server.port).await;
        let name = unique_name();
        let observer = Observer::new(&server.url(), &name, 1).await;
        let client = SemaphoreClient::connect(&proxy.url()).await.unwrap();
        let hour = Duration::from_secs(3600);
        let semaphore = client.semaphore(name).limit(1).lease(hour).build().unwrap();
        semaphore.acquire().await.unwrap().release().await.unwrap();
        Self { _server: server, proxy, observer, client, semaphore }
    }

    /// Starts a `try_acquire` that the server grants, and holds back the reply.
    async fn granted_try(&self) -> BoxFuture<'_, Result<Option<Permit>, Error>> {
        self.proxy.replies(Flow::Hold);
        let mut trying = self.semaphore.try_acquire().boxed();
        assert!(trying.as_mut().now_or_never().is_none());
        self.observer.sees(1, 0).await;
        trying
    }
}

/// After the shutdown, no background task runs, so the drop must start the task that sends the
/// release.
#[tokio::test]
async fn a_granted_try_acquire_dropped_after_a_shutdown_is_released() {
    let scene = Scene::set().await;
    let Scene { proxy, observer, client, .. } = &scene;
    let trying = scene.granted_try().await;
    client.shutdown().await;
    drop(trying);
    proxy.replies(Flow::Pass);
    observer.sees(0, 0).await;
}

#[tokio::test]
async fn a_permit_dropped_after_a_shutdown_is_released() {
    let Scene { observer, client, semaphore, .. } = &Scene::set().await;
    let permit = semaphore.acquire().await.unwrap();
    client.shutdown().await;
    drop(permit);
    observer.sees(0, 0).await;
}

#[tokio::test]
async fn a_try_acquire_fails_if_its_reply_arrives_after_a_shutdown() {
    let scene = Scene::set().await;
    let Scene { proxy, observer, client, .. } = &scene;
    let trying = scene.granted_try().await;
    client.shutdown().await;
    proxy.replies(Flow::Pass);
    assert!(matches!(trying.await, Err(Error::Shutdown)));
    observer.sees(0, 0).await;
}

/// The first call of one wait is under way, and another wait is queued. Both waits end before the
/// shutdown ends, because only the shutdown waits for the server.
#[tokio::test]
async fn waits_end_at_once_although_a_shutdown_gets_no_reply() {
    let Scene { proxy, observer, client, semaphore, .. } = &Scene::set().await;
    let _holder = semaphore.acquire().await.unwrap();
    let queued = tokio::spawn(semaphore.request().acquire());
    observer.sees(1, 1).await;
    proxy.replies(Flow::Hold);
    let asking = tokio::spawn(semaphore.request().acquire());
    observer.sees(1, 2).await;
    let shutdown = tokio::spawn({
        let client = client.clone();
        async move { client.shutdown().await }
    });
    for wait in [queued, asking] {
        assert!(matches!(wait.await.unwrap(), Err(Error::Shutdown)));
    }
    assert!(!shutdown.is_finished());
    proxy.replies(Flow::Pass);
    shutdown.await.unwrap();
    observer.sees(1, 0).await;
}

#[tokio::test]
async fn a_shutdown_without_a_reply_returns() {
    let Scene { proxy, observer, client, semaphore, .. } = &Scene::set().await;
    let permit = semaphore.acquire().await.unwrap();
    proxy.commands(Flow::Hold);
    drop(permit);
    in_time("the shutdown", client.shutdown()).await;
    observer.sees(1, 0).await;
    // The remaining release is still retried while the runtime exists.
    proxy.commands(Flow::Pass);
    observer.sees(0, 0).await;
}

/// A permit may be dropped at the moment at which the background jobs end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_dropped_during_a_shutdown_are_released() {
    let url = shared_url();
    for _ in 0..100 {
        let name = unique_name();
        let observer = Observer::new(&url, &name, 60).await;
        let client = SemaphoreClient::connect(&url).await.unwrap();
        let hour = Duration::from_secs(3600);
        let semaphore = client.semaphore(name).limit(60).lease(hour).build().unwrap();
        let mut permits = try_join_all((0..60).map(|_| semaphore.acquire())).await.unwrap();
        let threads: Vec<_> = (0..3)
            .map(|_| permits.split_off(permits.len() - 20))
            .map(|some| std::thread::spawn(move || some.into_iter().for_each(drop)))
            .collect();
        client.shutdown().await;
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        observer.sees(0, 0).await;
    }
}

/// When the shutdown begins, a wait may exist that no task polls any more. For example, `select!`
/// stops polling a wait when a termination signal arrives.
#[tokio::test]
async fn an_unpolled_acquire_is_released_by_a_shutdown() {
    let Scene { observer, client, semaphore, .. } = &Scene::set().await;
    let mut waiting = semaphore.acquire().boxed();
    assert!(waiting.as_mut().now_or_never().is_none());
    client.shutdown().await;
    observer.sees(0, 0).await;
    assert!(matches!(waiting.await, Err(Error::Shutdown)));
}

#[tokio::test]
async fn shutdown_ends_waits_completes_releases_and_rejects_later_acquires() {
    let (url, name) = (shared_url(), unique_name());
    let observer = Observer::new(&url, &name, 1).await;
    let others = SemaphoreClient::connect(&url).await.unwrap();
    let holder = others.semaphore(&name).limit(1).build().unwrap().acquire().await.unwrap();
    let client = SemaphoreClient::connect(&url).await.unwrap();
    let mine = client.semaphore(&name).limit(1).build().unwrap();
    let waiting = tokio::spawn({
        let mine = mine.clone();
        async move { mine.acquire().await }
    });
    observer.sees(1, 1).await;
    client.shutdown().await;
    // The shutdown has waited until the request left the queue.
    assert_eq!(observer.look().await.queued, 0);
    assert!(matches!(waiting.await.unwrap(), Err(Error::Shutdown)));
    assert!(matches!(mine.acquire().await, Err(Error::Shutdown)));
    assert!(matches!(mine.try_acquire().await, Err(Error::Shutdown)));
    client.shutdown().await;
    holder.release().await.unwrap();

    let client = SemaphoreClient::connect(&url).await.unwrap();
    let mine = client.semaphore(&name).limit(1).build().unwrap();
    drop(mine.acquire().await.unwrap());
    client.shutdown().await;
    assert_eq!(observer.look().await.held, 0);
}

/// The shutdown begins while acquires are under way. Each acquire ends with a permit that the
/// server knows, or with an error and no permit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_during_a_shutdown_returns_a_held_permit_or_an_error() {
    let (url, name) = (shared_url(), unique_name());
    let observer = Observer::new(&url, &name, 1_000).await;
    for round in 0..20 {
        let client = SemaphoreClient::connect(&url).await.unwrap();
        let semaphore = client.semaphore(&name).limit(1_000).build().unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let semaphore = semaphore.clone();
            tasks.spawn(async move { semaphore.acquire().await });
        }
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        client.shutdown().await;
        let mut held = Vec::new();
        while let Some(result) = tasks.join_next().await {
            match result.unwrap() {
                Ok(permit) => held.push(permit),
                Err(error) => assert!(matches!(error, Error::Shutdown), "{error}"),
            }
        }
        for permit in held {
            permit.release().await.unwrap();
        }
        observer.sees(0, 0).await;
    }
}
