//! Tests of `let_expire`, which limits starts per time.

use std::time::Duration;

use redis::Client;
use redis::aio::MultiplexedConnection;
use redis_semaphore::{Error, Semaphore, SemaphoreBuilder, SemaphoreClient};
use tokio::task::JoinSet;

use test_support::child::{self, Process};
use test_support::observer::{Observer, eventually, in_time};
use test_support::proxy::{Flow, Proxy};
use test_support::server::{Server, shared_admin_url, shared_url, unique_name};

/// A duration that is longer than any test.
pub(super) const LONG: Duration = Duration::from_secs(300);

/// The minimum difference between a new lease and what `use_up` leaves of the old lease.
pub(super) const USED: Duration = Duration::from_secs(30);

const LIMIT: u32 = 20;
const WINDOW: Duration = Duration::from_secs(2);
const TASKS: u32 = 10;
const STARTS: u32 = 3;

fn starts(client: &SemaphoreClient, name: &str) -> SemaphoreBuilder {
    client.semaphore(name).limit(LIMIT).lease(WINDOW).let_expire_on_drop(true)
}

/// Returns the time of the server's clock, in ms.
async fn now(server: &mut MultiplexedConnection) -> u64 {
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(server).await.unwrap();
    seconds * 1000 + micros / 1000
}

/// This is not a test, but a process that starts work and prints the times of the starts.
#[tokio::test]
async fn a_process_that_starts_rate_limited_work() {
    let Some(name) = child::role() else {
        return;
    };
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let semaphore = starts(&client, &name).build().unwrap();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let semaphore = semaphore.clone();
        tasks.spawn(async move {
            let client = Client::open(shared_admin_url()).unwrap();
            let mut server = client.get_multiplexed_async_connection().await.unwrap();
            for turn in 0..STARTS {
                let permit = semaphore.acquire().await.unwrap();
                // Some time passes before the work starts.
                for _ in 0..fastrand::u32(0..100) {
                    now(&mut server).await;
                }
                child::say(&format!("started {}", now(&mut server).await));
                match (task + turn) % 3 {
                    0 => drop(permit),
                    _ => permit.let_expire().await.unwrap(),
                }
            }
        });
    }
    tasks.join_all().await;
    client.shutdown().await;
}

/// All processes read the times from the server's clock.
#[tokio::test]
async fn no_window_holds_more_starts_than_the_limit() {
    let name = unique_name();
    let mut processes: Vec<_> = (0..3)
        .map(|_| {
            Process::start("semaphore::let_expire::a_process_that_starts_rate_limited_work", &name)
        })
        .collect();
    let mut started = Vec::new();
    let read = |line: &str| line.strip_prefix("started ").unwrap().parse::<u64>().unwrap();
    for process in &mut processes {
        while let Some(line) = process.next().await {
            started.push(read(&line));
        }
    }
    assert_eq!(started.len() as u32, 3 * TASKS * STARTS);
    started.sort_unstable();
    let window = WINDOW.as_millis() as u64;
    let spans = started.windows(LIMIT as usize + 1).map(|some| some[LIMIT as usize] - some[0]);
    let shortest = spans.min().unwrap();
    println!("{} starts, {} within {shortest} ms at least", started.len(), LIMIT + 1);
    assert!(shortest >= window, "{} starts within {shortest} ms", LIMIT + 1);
}

/// Moves the server's clock forward, so that a restarted lease is clearly longer than the current
/// lease. Returns the rest of the current lease.
pub(super) async fn use_up(server: &Server, left: impl AsyncFn() -> Duration) -> Duration {
    let before = left().await;
    server.clock.run_ahead_by(60_000_000);
    eventually("part of the lease has passed", left, |left| *left + USED < before).await
}

/// A semaphore whose permits are not refreshed automatically.
struct Scene {
    server: Server,
    proxy: Proxy,
    observer: Observer,
    client: SemaphoreClient,
    semaphore: Semaphore,
}

impl Scene {
    async fn set() -> Self {
        let server = Server::start();
        let proxy = Proxy::start(server.port).await;
        let observer = Observer::new(&server.url(), "left", 2).await;
        let client = SemaphoreClient::builder().response_timeout(Duration::from_secs(5));
        let client = client.connect(&proxy.url()).await.unwrap();
        let builder = client.semaphore("left").limit(2).lease(LONG).let_expire_on_drop(true);
        let semaphore = builder.auto_refresh(false).build().unwrap();
        Self { server, proxy, observer, client, semaphore }
    }

    async fn left(&self) -> Duration {
        self.observer.sees(1, 0).await.holders[0].expires_in
    }

    async fn used(&self) -> Duration {
        use_up(&self.server, async || self.left().await).await
    }

    async fn begins_anew(&self, used: Duration) {
        eventually("a new lease", async || self.left().await, |left| *left > used + USED).await;
    }
}

#[tokio::test]
async fn let_expire_keeps_the_permit_taken_until_its_lease_expires() {
    let name = unique_name();
    let observer = Observer::new(&shared_url(), &name, 1).await;
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let lease = Duration::from_secs(3);
    let semaphore = client.semaphore(&name).limit(1).lease(lease).build().unwrap();
    let permit = semaphore.acquire().await.unwrap();
    let watch = permit.watch();
    permit.let_expire().await.unwrap();
    assert!(!watch.is_held() && !watch.is_lost());
    in_time("the end", watch.ended()).await;
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    // A waiter gets the permit when the lease expires.
    let next = in_time("the next turn", semaphore.acquire()).await.unwrap();
    next.release().await.unwrap();
    observer.sees(0, 0).await;
}

#[tokio::test]
async fn let_expire_restarts_the_lease() {
    let scene = Scene::set().await;
    let permit = scene.semaphore.acquire().await.unwrap();
    let used = scene.used().await;
    permit.let_expire().await.unwrap();
    assert!(scene.left().await > used + USED);
}

/// The permit is also left to expire if the future is dropped before its first poll, or during the
/// call.
#[tokio::test]
async fn a_dropped_let_expire_call_still_restarts_the_lease() {
    let scene = Scene::set().await;
    let permit = scene.semaphore.acquire().await.unwrap();
    let used = scene.used().await;
    drop(permit.let_expire());
    scene.begins_anew(used).await;

    let scene = Scene::set().await;
    let permit = scene.semaphore.acquire().await.unwrap();
    let used = scene.used().await;
    scene.proxy.requests(Flow::Hold);
    let leaving = tokio::spawn(permit.let_expire());
    let held = async || scene.proxy.held_requests();
    eventually("the call is under way", held, |held| *held > 0).await;
    leaving.abort();
    let _ = leaving.await;
    scene.proxy.requests(Flow::Swallow);
    scene.proxy.cut_commands();
    scene.proxy.requests(Flow::Pass);
    scene.begins_anew(used).await;
}

#[tokio::test]
async fn let_expire_is_retried_after_a_lost_reply() {
    let scene = Scene::set().await;
    let permit = scene.semaphore.acquire().await.unwrap();
    let used = scene.used().await;
    scene.proxy.replies(Flow::Swallow);
    let leaving = tokio::spawn(permit.let_expire());
    scene.begins_anew(used).await;
    scene.proxy.replies(Flow::Pass);
    scene.proxy.cut_commands();
    in_time("its reply", leaving).await.unwrap().unwrap();
    scene.observer.sees(1, 0).await;
}

/// During an outage the call fails, and is retried in the background.
#[tokio::test]
async fn let_expire_takes_effect_after_an_outage() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let observer = Observer::new(&server.url(), "left", 1).await;
    let client = SemaphoreClient::connect(&proxy.url()).await.unwrap();
    let semaphore = client.semaphore("left").limit(1).lease(LONG).build().unwrap();
    let permit = semaphore.acquire().await.unwrap();
    let left = async || observer.sees(1, 0).await.holders[0].expires_in;
    proxy.refuse_connections(true);
    proxy.cut_all();
    let used = use_up(&server, left).await;
    let refused = permit.let_expire().await;
    assert!(
        matches!(refused, Err(Error::Unavailable { operation: "let_expire", .. })),
        "{refused:?}"
    );
    assert!(left().await <= used);
    proxy.refuse_connections(false);
    eventually("a new lease", left, |left| *left > used + USED).await;
}

#[tokio::test]
async fn let_expire_on_drop_applies_when_work_panics_or_is_canceled() {
    let scene = Scene::set().await;
    let permit = scene.semaphore.acquire().await.unwrap();
    let used = scene.used().await;
    let work = tokio::spawn(async move {
        let _permit = permit;
        panic!("the work panics, as this test wants it");
    });
    assert!(work.await.unwrap_err().is_panic());
    scene.begins_anew(used).await;

    let scene = Scene::set().await;
    let permit = scene.semaphore.acquire().await.unwrap();
    let used = scene.used().await;
    let work = tokio::spawn(async move {
        let _permit = permit;
        std::future::pending::<()>().await;
    });
    work.abort();
    assert!(work.await.unwrap_err().is_cancelled());
    scene.begins_anew(used).await;
}

/// A shutdown waits until the server has restarted the leases of the permits that were dropped
/// before. After a shutdown, a drop restarts the lease in the background.
#[tokio::test]
async fn let_expire_on_drop_applies_before_and_after_a_shutdown() {
    let scene = Scene::set().await;
    let permit = scene.semaphore.acquire().await.unwrap();
    let used = scene.used().await;
    drop(permit);
    scene.client.shutdown().await;
    assert!(scene.left().await > used + USED);

    let scene = Scene::set().await;
    let permit = scene.semaphore.acquire().await.unwrap();
    let used = scene.used().await;
    scene.client.shutdown().await;
    drop(permit);
    scene.begins_anew(used).await;
}

/// A release, and a wait that is dropped after its grant, do not count as starts.
#[tokio::test]
async fn let_expire_on_drop_does_not_apply_to_a_release_or_a_dropped_wait() {
    let scene = Scene::set().await;
    let both = scene.semaphore.acquire_many(2).await.unwrap();
    let mut waiting = Box::pin(scene.semaphore.acquire());
    // The future is polled only until it waits.
    tokio::select! {
        biased;
        _ = &mut waiting => unreachable!("all is held"),
        _ = scene.observer.sees(2, 1) => {}
    }
    both.release().await.unwrap();
    scene.observer.sees(1, 0).await;
    drop(waiting);
    scene.observer.sees(0, 0).await;
}

#[tokio::test]
async fn let_expire_fails_for_a_lost_permit() {
    let name = unique_name();
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let builder = client.semaphore(&name).limit(1).lease(Duration::from_millis(300));
    let semaphore = builder.auto_refresh(false).build().unwrap();
    let permit = semaphore.acquire().await.unwrap();
    in_time("the loss", permit.lost()).await;
    let next = in_time("the next turn", semaphore.acquire()).await.unwrap();
    let refused = permit.let_expire().await;
    assert!(matches!(refused, Err(Error::Lost { operation: "let_expire", .. })), "{refused:?}");
    next.let_expire().await.unwrap();
}

/// A refresh does not extend the lease beyond `max_hold` after the grant. But the last lease, which
/// `let_expire` starts, has the full length of `max_hold`, because `max_hold` is shorter than the
/// configured lease. The server's clock does not move, so the times are exact.
#[tokio::test]
async fn the_last_lease_does_not_end_with_max_hold() {
    let server = Server::start();
    server.clock.freeze_at(1_700_000_000_000_000);
    let observer = Observer::new(&server.url(), "left", 1).await;
    let client = SemaphoreClient::connect(&server.url()).await.unwrap();
    let builder = client.semaphore("left").limit(1).lease(LONG * 2).max_hold(LONG);
    let permit = builder.auto_refresh(false).build().unwrap().acquire().await.unwrap();
    let some = Duration::from_millis(100);
    let rest = async || permit.expires_in();
    eventually("part of the lease has passed", rest, |rest| *rest + some < LONG).await;
    let left = async || observer.sees(1, 0).await.holders[0].expires_in;
    permit.refresh().await.unwrap();
    assert!(left().await + some / 2 < LONG);
    permit.let_expire().await.unwrap();
    assert!((LONG - some / 2..=LONG).contains(&left().await));
}
