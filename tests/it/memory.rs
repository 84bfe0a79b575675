//! Tests with a server whose memory is full of other data. The server's policy is `noeviction`.

use std::time::{Duration, Instant};

use redis::Connection;
use redis_semaphore::{Error, Permit, Semaphore, SemaphoreClient};
use tokio::task::{JoinHandle, JoinSet};

use test_support::observer::{Observer, in_time, passed, refreshed};
use test_support::scripts::Scripts;
use test_support::server::Server;

const MEGABYTE: usize = 1 << 20;
const NAME: &str = "crowded";

struct Scene {
    server: Server,
    admin: Connection,
    semaphore: Semaphore,
    observer: Observer,
    /// The semaphore's keys, as any client sees them.
    keys: Scripts,
}

impl Scene {
    async fn set(limit: u32, lease: Duration, heartbeat_timeout: Duration) -> Self {
        let server = Server::start();
        let client = SemaphoreClient::builder()
            .heartbeat_timeout(heartbeat_timeout)
            .connect(&server.url())
            .await
            .unwrap();
        let semaphore = client.semaphore(NAME).limit(limit).lease(lease).build().unwrap();
        let observer = Observer::new(&server.url(), NAME, limit).await;
        let keys = Scripts::new(server.connect(), NAME);
        Self { admin: server.connect(), server, semaphore, observer, keys }
    }

    async fn usual(limit: u32) -> Self {
        Self::set(limit, Duration::from_secs(60), Duration::from_secs(15)).await
    }

    fn fill_memory(&mut self) {
        let info: String = redis::cmd("INFO").arg("memory").query(&mut self.admin).unwrap();
        let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
        let most = used.parse::<usize>().unwrap() + 4 * MEGABYTE;
        redis::cmd("SETRANGE")
            .arg("other")
            .arg(8 * MEGABYTE)
            .arg("x")
            .exec(&mut self.admin)
            .unwrap();
        self.limit_memory(most);
        let full = redis::cmd("SET").arg("more").arg(1).exec(&mut self.admin).unwrap_err();
        assert_eq!(full.code(), Some("OOM"), "{full}");
    }

    fn limit_memory(&mut self, most: usize) {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("maxmemory").arg(most).exec(&mut self.admin).unwrap();
    }

    fn free_memory(&mut self) {
        redis::cmd("DEL").arg("other").exec(&mut self.admin).unwrap();
        redis::cmd("SET").arg("more").arg(1).exec(&mut self.admin).unwrap();
        self.limit_memory(0);
    }

    fn start_waiting(&self) -> JoinHandle<Result<Permit, Error>> {
        let semaphore = self.semaphore.clone();
        tokio::spawn(async move { semaphore.acquire().await })
    }
}

#[track_caller]
fn assert_names_the_cause<T: std::fmt::Debug>(outcome: Result<T, Error>, operation: &str) {
    let error = outcome.unwrap_err();
    let text = error.to_string();
    for part in [NAME, operation, "OOM", "maxmemory"] {
        assert!(text.contains(part), "{text:?} does not say {part}");
    }
    assert!(matches!(error, Error::Rejected { .. }), "{error:?}");
}

#[tokio::test]
async fn on_a_full_server_a_rejected_acquire_names_the_cause_and_changes_nothing() {
    // With the limit 2, a permit is free. With the limit 1, no permit is free.
    for limit in [2, 1] {
        let mut scene = Scene::usual(limit).await;
        let permit = scene.semaphore.acquire().await.unwrap();
        scene.fill_memory();
        let before = scene.keys.dump();
        assert_names_the_cause(scene.semaphore.acquire().await, "acquire");
        if limit == 2 {
            assert_names_the_cause(scene.semaphore.try_acquire().await, "acquire");
        } else {
            assert!(
                scene.semaphore.try_acquire().await.unwrap().is_none(),
                "a try changes nothing"
            );
        }
        assert_names_the_cause(scene.semaphore.set_limit(7).await, "set_limit");
        // A request that a full server rejects changes nothing, so no release follows.
        let now = scene.observer.sees(1, 0).await;
        assert_eq!((now.holders[0].id.as_str(), now.limit), (permit.id(), limit));
        assert_eq!(scene.keys.dump(), before);
        permit.release().await.unwrap();
        scene.free_memory();
        scene.semaphore.acquire().await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn a_full_server_rejects_a_first_acquire_but_accepts_connections() {
    let mut scene = Scene::usual(1).await;
    scene.fill_memory();
    let client = SemaphoreClient::connect(&scene.server.url()).await.unwrap();
    let semaphore = client.semaphore(NAME).limit(1).build().unwrap();
    assert_names_the_cause(semaphore.acquire().await, "acquire");
    assert_eq!(semaphore.inspect().await.unwrap().held, 0);
    assert_eq!(semaphore.wake().await.unwrap(), 0);
    scene.free_memory();
    semaphore.acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_full_server_grants_released_permits_to_waiters() {
    let mut scene = Scene::usual(1).await;
    let first = scene.semaphore.acquire().await.unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..2 {
        let semaphore = scene.semaphore.clone();
        waiting.spawn(async move { semaphore.acquire().await });
    }
    scene.observer.sees(1, 2).await;
    scene.fill_memory();
    // The release also works if the server has lost the script.
    redis::cmd("SCRIPT").arg("FLUSH").exec(&mut scene.admin).unwrap();
    first.release().await.unwrap();
    let next = in_time("the next turn", waiting.join_next()).await;
    let permit = next.unwrap().unwrap().unwrap();
    let now = scene.observer.sees(1, 1).await;
    assert_eq!(now.holders[0].id, permit.id());
    // An abandoned wait leaves the queue, and a dropped permit is released.
    waiting.abort_all();
    scene.observer.sees(1, 0).await;
    drop(permit);
    scene.observer.sees(0, 0).await;
}

#[tokio::test]
async fn a_full_server_refreshes_permits() {
    let lease = Duration::from_secs(3);
    let mut scene = Scene::set(2, lease, Duration::from_secs(15)).await;
    let (idle, by_hand) =
        (scene.semaphore.acquire().await.unwrap(), scene.semaphore.acquire().await.unwrap());
    scene.fill_memory();
    // The refresh also works if the server has lost the script.
    redis::cmd("SCRIPT").arg("FLUSH").exec(&mut scene.admin).unwrap();
    by_hand.refresh().await.unwrap();
    refreshed(&idle).await;
    scene.observer.sees(2, 0).await;
    idle.release().await.unwrap();
    by_hand.release().await.unwrap();
}

#[tokio::test]
async fn waiters_survive_a_full_server_and_keep_their_order() {
    let heartbeat_timeout = Duration::from_millis(600);
    let mut scene = Scene::set(1, Duration::from_secs(60), heartbeat_timeout).await;
    let holder = scene.semaphore.acquire().await.unwrap();
    let first = scene.start_waiting();
    let first_id = scene.observer.sees(1, 1).await.waiters[0].id.clone();
    let second = scene.start_waiting();
    scene.observer.sees(1, 2).await;
    scene.fill_memory();
    // The server rejects heartbeats for longer than the heartbeat timeout. After the heartbeat
    // timeout, the waiters count as dead, and a handoff skips them.
    passed(Instant::now() + 2 * heartbeat_timeout).await;
    assert!(!first.is_finished() && !second.is_finished(), "refused while they waited");
    holder.release().await.unwrap();
    scene.observer.sees(0, 0).await;
    scene.free_memory();
    let permit = in_time("the first waiter's turn", first).await.unwrap().unwrap();
    assert_eq!(permit.id(), first_id);
    scene.observer.sees(1, 1).await;
    permit.release().await.unwrap();
    let permit = in_time("the second waiter's turn", second).await.unwrap().unwrap();
    permit.release().await.unwrap();
}

#[tokio::test]
async fn a_wait_fails_if_the_server_is_full_longer_than_the_outage_tolerance() {
    let server = Server::start();
    let builder = SemaphoreClient::builder().heartbeat_timeout(Duration::from_millis(300));
    let builder = builder.outage_tolerance(Duration::from_millis(500));
    let client = builder.connect(&server.url()).await.unwrap();
    let semaphore = client.semaphore(NAME).limit(1).build().unwrap();
    let observer = Observer::new(&server.url(), NAME, 1).await;
    let keys = Scripts::new(server.connect(), NAME);
    let mut scene = Scene { admin: server.connect(), server, semaphore, observer, keys };
    let holder = scene.semaphore.acquire().await.unwrap();
    let waiting = scene.start_waiting();
    scene.observer.sees(1, 1).await;
    scene.fill_memory();
    let outcome = in_time("the end of the outage tolerance", waiting).await.unwrap();
    assert_names_the_cause(outcome, "acquire");
    scene.observer.sees(1, 0).await;
    holder.release().await.unwrap();
}
