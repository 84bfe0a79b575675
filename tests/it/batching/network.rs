//! Tests over a network: a request does not wait for the reply to another caller's call. A proxy
//! holds back one direction, and thereby shows how many calls are under way.

use std::sync::Mutex;
use std::time::Duration;

use redis_semaphore::{Error, Permit, Semaphore, SemaphoreClient};
use tokio::task::JoinHandle;

use test_support::observer::{Observer, eventually, in_time};
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
    async fn set(limit: u32, response_timeout: Duration) -> Self {
        let server = Server::start();
        let proxy = Proxy::start(server.port).await;
        let name = unique_name();
        let observer = Observer::new(&server.url(), &name, limit).await;
        let builder = SemaphoreClient::builder().response_timeout(response_timeout);
        let client = builder.connect(&proxy.url()).await.unwrap();
        let semaphore = client.semaphore(name).limit(limit).build().unwrap();
        semaphore.acquire().await.unwrap().release().await.unwrap();
        Self { server, proxy, client, semaphore, observer }
    }

    fn acquire(&self, weight: u32) -> JoinHandle<Result<Permit, Error>> {
        let semaphore = self.semaphore.clone();
        tokio::spawn(async move { semaphore.acquire_many(weight).await })
    }
}

const PATIENT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn requests_do_not_wait_for_the_reply_to_an_earlier_call() {
    let scene = Scene::set(20, PATIENT).await;
    let permits: Vec<Permit> =
        futures_util::future::join_all((0..5).map(|_| async { scene.acquire(1).await.unwrap() }))
            .await
            .into_iter()
            .map(Result::unwrap)
            .collect();
    scene.proxy.replies(Flow::Hold);
    let mut acquires = Vec::new();
    for held in 6..10 {
        acquires.push(scene.acquire(1));
        scene.observer.sees(held, 0).await;
    }
    let mut releases = Vec::new();
    for (permit, held) in permits.into_iter().zip((4..9).rev()) {
        releases.push(tokio::spawn(permit.release()));
        scene.observer.sees(held, 0).await;
    }
    let mut refreshes = Vec::new();
    scene.proxy.replies(Flow::Pass);
    for acquire in acquires {
        let permit = in_time("a permit", acquire).await.unwrap().unwrap();
        refreshes.push(async move { permit.refresh().await });
    }
    for release in releases {
        in_time("a release", release).await.unwrap().unwrap();
    }
    for refresh in refreshes {
        in_time("a refresh", refresh).await.unwrap();
    }
}

/// Each connection gets one reply, which is for the first command of redis-rs. Without further
/// replies, the client must also send the subscription and the call of `probe`.
#[tokio::test]
async fn connecting_takes_two_round_trips() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    proxy.responses(0);
    let url = proxy.url();
    let builder = SemaphoreClient::builder().response_timeout(PATIENT);
    let connecting = tokio::spawn(async move { builder.connect(&url).await });
    let connections = async || proxy.accepted();
    eventually("two connections at once", connections, |there| *there == 2).await;
    proxy.responses(1);
    let mut admin = server.connect();
    let asked = async || {
        let channels: Vec<String> =
            redis::cmd("PUBSUB").arg("CHANNELS").arg("sem:wake:*").query(&mut admin).unwrap();
        (channels.len(), server.calls("evalsha") > 0)
    };
    eventually("the subscription and the probe", asked, |asked| *asked == (1, true)).await;
    proxy.responses(usize::MAX);
    in_time("the connection", connecting).await.unwrap().unwrap();
}

/// A handoff needs only two messages: the release to the server, and the grant message to the
/// waiter.
#[tokio::test]
async fn a_handoff_needs_only_the_release_and_the_grant_message() {
    let scene = Scene::set(1, PATIENT).await;
    let other = Proxy::start(scene.server.port).await;
    let waits = SemaphoreClient::builder().response_timeout(PATIENT);
    let waits = waits.connect(&other.url()).await.unwrap();
    let waits = waits.semaphore(scene.semaphore.name()).limit(1).build().unwrap();
    let mut held = scene.semaphore.acquire().await.unwrap();
    for _ in 0..5 {
        let waiter = waits.clone();
        let waiter = tokio::spawn(async move { waiter.acquire().await });
        scene.observer.sees(1, 1).await;
        // The reply to the queued request may still be on its way back.
        scene.proxy.replies(Flow::Hold);
        other.requests(Flow::Hold);
        let release = tokio::spawn(held.release());
        let next = in_time("the next permit", waiter).await.unwrap().unwrap();
        scene.proxy.replies(Flow::Pass);
        other.requests(Flow::Pass);
        in_time("a release", release).await.unwrap().unwrap();
        next.release().await.unwrap();
        held = scene.semaphore.acquire().await.unwrap();
    }
}

#[tokio::test]
async fn calls_that_fail_together_are_retried_in_their_original_order() {
    let scene = Scene::set(1, PATIENT).await;
    let held = scene.semaphore.acquire().await.unwrap();
    // These calls never reach the server, so only the second attempts determine their order.
    scene.proxy.commands(Flow::Swallow);
    let mut waiting = Vec::new();
    for _ in 0..8 {
        let before = scene.proxy.swallowed_requests();
        waiting.push(scene.acquire(1));
        let swallowed = async || scene.proxy.swallowed_requests();
        eventually("a sent call", swallowed, |now| *now > before).await;
    }
    scene.proxy.cut_commands();
    scene.proxy.commands(Flow::Pass);
    scene.observer.sees(1, 8).await;
    held.release().await.unwrap();
    let mut last = 0;
    for waiter in waiting {
        let permit = in_time("a permit", waiter).await.unwrap().unwrap();
        assert!(permit.fencing_token() > last, "in the order of the requests");
        last = permit.fencing_token();
        permit.release().await.unwrap();
    }
}

/// The order holds even if the connection of the first request is lost.
#[tokio::test]
async fn refreshes_of_one_permit_do_not_overtake_each_other() {
    let scene = Scene::set(1, PATIENT).await;
    let permit = scene.semaphore.acquire().await.unwrap();
    let answered = Mutex::new(Vec::new());
    let refresh = async |number: u32| {
        permit.refresh().await.unwrap();
        answered.lock().unwrap().push(number);
    };
    scene.proxy.commands(Flow::Swallow);
    let before = scene.proxy.swallowed_requests();
    let fails = async {
        let swallowed = async || scene.proxy.swallowed_requests();
        eventually("a sent call", swallowed, |now| *now > before).await;
        scene.proxy.commands(Flow::Pass);
        scene.proxy.cut_commands();
    };
    in_time("all replies", async {
        tokio::join!(refresh(1), refresh(2), fails, refresh(3));
    })
    .await;
    assert_eq!(*answered.lock().unwrap(), [1, 2, 3]);
}

/// The client abandons the connection on which it sent `acquire`. The network delivers that call
/// after a retry was granted and its permit was released.
#[tokio::test]
async fn a_permit_granted_to_a_late_copy_of_an_acquire_is_released() {
    let scene = Scene::set(1, Duration::from_millis(300)).await;
    scene.proxy.stick(true);
    let permit = in_time("a permit", scene.acquire(1)).await.unwrap().unwrap();
    permit.release().await.unwrap();
    scene.observer.sees(0, 0).await;
    scene.proxy.stick(false);
    scene.observer.sees(1, 0).await;
    scene.observer.sees(0, 0).await;
}

#[tokio::test]
async fn a_permit_granted_to_a_late_copy_of_an_acquire_is_released_by_the_adopter() {
    let scene = Scene::set(1, Duration::from_millis(300)).await;
    let other = SemaphoreClient::connect(&scene.server.url()).await.unwrap();
    let other = other.semaphore(scene.semaphore.name()).limit(1).build().unwrap();
    scene.proxy.stick(true);
    let permit = in_time("a permit", scene.acquire(1)).await.unwrap().unwrap();
    other.adopt(permit.detach()).await.unwrap().release().await.unwrap();
    scene.observer.sees(0, 0).await;
    scene.proxy.stick(false);
    scene.observer.sees(1, 0).await;
    scene.observer.sees(0, 0).await;
}

#[tokio::test]
async fn a_permit_granted_to_a_late_copy_of_a_try_acquire_is_released() {
    let scene = Scene::set(1, Duration::from_millis(300)).await;
    let held = scene.semaphore.acquire().await.unwrap();
    scene.proxy.stick(true);
    let semaphore = scene.semaphore.clone();
    let refused = tokio::spawn(async move { semaphore.try_acquire().await });
    let out = async || scene.proxy.held_requests();
    eventually("a sent try", out, |out| *out > 0).await;
    scene.proxy.hang_up();
    assert!(in_time("a refusal", refused).await.unwrap().unwrap().is_none());
    held.release().await.unwrap();
    scene.observer.sees(0, 0).await;
    scene.proxy.stick(false);
    scene.observer.sees(1, 0).await;
    scene.observer.sees(0, 0).await;
}

#[tokio::test]
async fn a_late_copy_of_set_limit_does_not_override_a_newer_limit() {
    let scene = Scene::set(1, Duration::from_millis(300)).await;
    let other = SemaphoreClient::connect(&scene.server.url()).await.unwrap();
    let other = other.semaphore(scene.semaphore.name()).limit(1).build().unwrap();
    scene.proxy.stick(true);
    let semaphore = scene.semaphore.clone();
    let changed = tokio::spawn(async move { semaphore.set_limit(5).await });
    let out = async || scene.proxy.held_requests();
    eventually("a sent change", out, |out| *out > 0).await;
    scene.proxy.hang_up();
    in_time("the change", changed).await.unwrap().unwrap();
    assert_eq!(other.set_limit(3).await.unwrap(), 5);
    let before = scene.server.calls("evalsha");
    scene.proxy.stick(false);
    let run = async || scene.server.calls("evalsha");
    eventually("the copy has arrived", run, |calls| *calls > before).await;
    assert_eq!(other.limit().await.unwrap(), 3);
}

/// The first request also declares the limit.
#[tokio::test]
async fn a_new_semaphore_needs_one_call_for_its_first_permit() {
    let scene = Scene::set(1, PATIENT).await;
    let semaphore = scene.client.semaphore(unique_name()).limit(2).build().unwrap();
    let before = scene.server.calls("evalsha");
    let permit = semaphore.acquire().await.unwrap();
    assert_eq!(scene.server.calls("evalsha"), before + 1);
    permit.release().await.unwrap();
    let now = semaphore.inspect().await.unwrap();
    assert_eq!((now.limit, now.declared_limit), (2, Some(2)));
    let fewer = scene.client.semaphore(semaphore.name()).limit(1).build().unwrap();
    fewer.acquire().await.unwrap().release().await.unwrap();
    assert_eq!(semaphore.limit().await.unwrap(), 1, "the newest declaration counts");
    // A semaphore declares its limit only with its first call.
    semaphore.acquire().await.unwrap().release().await.unwrap();
    assert_eq!(semaphore.limit().await.unwrap(), 1);
}

#[tokio::test]
async fn a_stall_that_affects_many_calls_does_not_close_the_connection() {
    let scene = Scene::set(9, Duration::from_secs(2)).await;
    let connections = scene.proxy.accepted();
    scene.proxy.replies(Flow::Hold);
    let mut acquires = Vec::new();
    for held in 1..=5 {
        acquires.push(scene.acquire(1));
        scene.observer.sees(held, 0).await;
    }
    let out = scene.proxy.passed_requests();
    let passed = async || scene.proxy.passed_requests();
    eventually("a call that is made again", passed, |now| *now > out).await;
    scene.proxy.replies(Flow::Pass);
    for acquire in acquires {
        assert!(in_time("a permit", acquire).await.unwrap().is_ok());
    }
    assert_eq!(scene.proxy.accepted(), connections, "the connection was not replaced");
}

#[tokio::test]
async fn too_heavy_requests_fail_without_affecting_other_requests() {
    let scene = Scene::set(4, PATIENT).await;
    scene.proxy.replies(Flow::Hold);
    let one = scene.acquire(1);
    scene.observer.sees(1, 0).await;
    let heavy: Vec<_> = (0..3).map(|_| scene.acquire(5)).collect();
    let others: Vec<_> = (0..3).map(|_| scene.acquire(1)).collect();
    scene.proxy.replies(Flow::Pass);
    for heavy in heavy {
        let refused = in_time("a refusal", heavy).await.unwrap();
        assert!(matches!(refused, Err(Error::TooHeavy { weight: 5, limit: 4, .. })), "{refused:?}");
    }
    for other in others.into_iter().chain([one]) {
        in_time("a permit", other).await.unwrap().unwrap().release().await.unwrap();
    }
}

/// A request in the same call as the heavy request would be sent again after the rejection, and
/// would be queued behind later requests.
#[tokio::test]
async fn requests_sent_with_a_too_heavy_request_keep_their_queue_position() {
    let scene = Scene::set(4, PATIENT).await;
    let held = scene.acquire(4).await.unwrap().unwrap();
    scene.proxy.replies(Flow::Hold);
    // The client sends the heavy request in its own call, because its weight exceeds the configured
    // limit.
    let mut waits = vec![scene.acquire(1), scene.acquire(3)];
    let heavy = scene.acquire(5);
    scene.observer.sees(4, 2).await;
    waits.push(scene.acquire(2));
    let seen = scene.observer.sees(4, 3).await;
    let weights: Vec<_> = seen.waiters.iter().map(|waiter| waiter.weight).collect();
    assert_eq!(weights, [1, 3, 2]);
    scene.proxy.replies(Flow::Pass);
    assert!(matches!(in_time("a refusal", heavy).await.unwrap(), Err(Error::TooHeavy { .. })));
    drop(held);
    for wait in waits {
        in_time("a permit", wait).await.unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn shutdown_releases_the_permits_and_requests_of_calls_under_way() {
    let scene = Scene::set(3, PATIENT).await;
    let held = scene.semaphore.acquire().await.unwrap();
    scene.proxy.replies(Flow::Hold);
    let mut out = Vec::new();
    for (held, queued) in [(2, 0), (3, 0), (3, 1), (3, 2)] {
        out.push(scene.acquire(1));
        scene.observer.sees(held, queued).await;
    }
    let client = scene.client.clone();
    let shutdown = tokio::spawn(async move { client.shutdown().await });
    scene.proxy.replies(Flow::Pass);
    in_time("the end", shutdown).await.unwrap();
    for out in out {
        assert!(matches!(in_time("an outcome", out).await.unwrap(), Err(Error::Shutdown)));
    }
    scene.observer.sees(1, 0).await;
    held.release().await.unwrap();
    scene.observer.sees(0, 0).await;
}
