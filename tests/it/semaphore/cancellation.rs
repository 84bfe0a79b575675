//! Tests in which an acquire is dropped at every stage, with every outcome on the server. After the
//! drop, the weight held and the length of the queue are the same as before the acquire.

use std::time::Duration;

use redis_semaphore::{Permit, Semaphore, SemaphoreClient};
use tokio::task::JoinHandle;

use test_support::observer::{Observer, eventually};
use test_support::proxy::{Flow, Proxy};
use test_support::server::{Server, unique_name};

const LIMIT: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Outcome {
    Granted,
    Queued,
    Refused,
}

/// The stage at which the request is dropped.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    /// The request arrives after the drop.
    BeforeTheServer,
    /// The server has replied; the reply arrives after the drop.
    ReplySlow,
    /// The reply never arrives, because the connection is cut.
    ReplyNever,
    /// The reply has been read. A request that was not granted has already ended.
    AfterTheReply,
}

struct Scene {
    server: Server,
    proxy: Proxy,
    semaphore: Semaphore,
    observer: Observer,
    /// Permits that other callers hold during the test.
    others: Vec<Permit>,
}

impl Scene {
    /// If the outcome is a grant, some permits stay free. Otherwise, other callers' permits use the
    /// whole limit.
    async fn set(outcome: Outcome) -> Self {
        let server = Server::start();
        let proxy = Proxy::start(server.port).await;
        let name = unique_name();
        let observer = Observer::new(&server.url(), &name, LIMIT).await;
        let client = SemaphoreClient::builder()
            .response_timeout(Duration::from_millis(500))
            .connect(&proxy.url())
            .await
            .unwrap();
        let semaphore = client.semaphore(name).limit(LIMIT).build().unwrap();
        // The declaration of the limit must not be part of the dropped call.
        semaphore.acquire().await.unwrap().release().await.unwrap();
        let others = match outcome {
            Outcome::Granted => vec![semaphore.acquire().await.unwrap()],
            _ => vec![semaphore.acquire_many(LIMIT).await.unwrap()],
        };
        Self { server, proxy, semaphore, observer, others }
    }

    fn start(&self, outcome: Outcome) -> JoinHandle<()> {
        let semaphore = self.semaphore.clone();
        tokio::spawn(async move {
            if outcome == Outcome::Refused {
                drop(semaphore.try_acquire_many(2).await);
            } else {
                // The permit is held until the task is dropped.
                let _permit = semaphore.acquire_many(2).await;
                std::future::pending::<()>().await;
            }
        })
    }

    fn others_hold(&self) -> u64 {
        self.others.iter().map(|permit| u64::from(permit.weight())).sum()
    }

    /// Waits until the server has granted, queued or not granted the request.
    async fn wait_until_served(&self, outcome: Outcome, looked_before: u64) {
        match outcome {
            Outcome::Granted => drop(self.observer.sees(self.others_hold() + 2, 0).await),
            Outcome::Queued => drop(self.observer.sees(self.others_hold(), 1).await),
            // A request that is not granted leaves no other trace.
            Outcome::Refused => {
                let looked = || async { self.looked_for() };
                eventually("the try was refused", looked, |looked| *looked > looked_before).await;
            }
        }
    }

    /// Returns how often the server looked up IDs. While permits are held, each request needs one
    /// look-up.
    fn looked_for(&self) -> u64 {
        self.server.calls("zmscore")
    }
}

async fn drop_at(stage: Stage, outcome: Outcome) {
    let scene = Scene::set(outcome).await;
    match stage {
        Stage::BeforeTheServer => scene.proxy.requests(Flow::Hold),
        Stage::ReplySlow => scene.proxy.replies(Flow::Hold),
        Stage::ReplyNever => scene.proxy.replies(Flow::Swallow),
        Stage::AfterTheReply => {}
    }
    let looked_before = scene.looked_for();
    let task = scene.start(outcome);
    if stage == Stage::BeforeTheServer {
        let held = || async { scene.proxy.held_requests() };
        eventually("a request is under way", held, |held| *held > 0).await;
    } else {
        scene.wait_until_served(outcome, looked_before).await;
    }
    task.abort();
    let _ = task.await;

    if stage == Stage::ReplyNever {
        scene.proxy.cut_commands();
    }
    scene.proxy.requests(Flow::Pass);
    scene.proxy.replies(Flow::Pass);
    scene.observer.sees(scene.others_hold(), 0).await;

    // The weight of the dropped request is free again, and other permits are unchanged.
    for permit in scene.others {
        permit.release().await.unwrap();
    }
    let all = scene.semaphore.try_acquire_many(LIMIT).await.unwrap();
    assert!(all.is_some(), "{stage:?} {outcome:?}");
}

#[tokio::test]
async fn an_acquire_dropped_at_any_stage_changes_neither_permits_nor_queue() {
    let stages =
        [Stage::BeforeTheServer, Stage::ReplySlow, Stage::ReplyNever, Stage::AfterTheReply];
    for stage in stages {
        for outcome in [Outcome::Granted, Outcome::Queued, Outcome::Refused] {
            drop_at(stage, outcome).await;
        }
    }
}

/// The server has handed off the permit. The waiter is dropped before the message arrives, or
/// between the message and the next poll.
#[tokio::test]
async fn a_wait_dropped_after_its_handoff_releases_the_permit() {
    for message in [Flow::Hold, Flow::Swallow, Flow::Pass] {
        let mut scene = Scene::set(Outcome::Queued).await;
        let mut waiting = Box::pin(scene.semaphore.acquire_many(2));
        // The future is polled only until it waits.
        tokio::select! {
            biased;
            _ = &mut waiting => unreachable!("others hold everything"),
            _ = scene.observer.sees(u64::from(LIMIT), 1) => {}
        }
        scene.proxy.messages(message);
        let all = scene.others.pop().unwrap();
        all.release().await.unwrap();
        scene.observer.sees(2, 0).await;
        drop(waiting);
        scene.proxy.messages(Flow::Pass);
        scene.observer.sees(0, 0).await;
    }
}

#[tokio::test]
async fn a_timed_out_wait_leaves_the_queue_and_reports_its_position() {
    let scene = Scene::set(Outcome::Queued).await;
    let first = scene.start(Outcome::Queued);
    scene.observer.sees(u64::from(LIMIT), 1).await;
    // The timeout is long enough for the reply with the position.
    let timeout = Duration::from_secs(1);
    let refused = scene.semaphore.acquire_timeout(timeout).await.unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("last queue position: 2"), "{text}");
    match refused {
        redis_semaphore::Error::Timeout { semaphore, waited, position, .. } => {
            assert_eq!((semaphore.as_str(), position), (scene.semaphore.name(), Some(2)));
            assert!(waited >= timeout);
        }
        other => panic!("{other}"),
    }
    scene.observer.sees(u64::from(LIMIT), 1).await;
    first.abort();
    scene.observer.sees(u64::from(LIMIT), 0).await;
}

#[tokio::test]
async fn a_dropped_release_and_a_forget_without_a_reply_still_take_effect() {
    for stage in [Flow::Hold, Flow::Swallow] {
        let mut scene = Scene::set(Outcome::Queued).await;
        let all = scene.others.pop().unwrap();
        let before = scene.proxy.swallowed_requests();
        scene.proxy.requests(stage);
        let mut release = Box::pin(all.release());
        let seen = async || (scene.proxy.held_requests(), scene.proxy.swallowed_requests());
        let is_sent = |(held, swallowed): &_| *held > 0 || *swallowed > before;
        tokio::select! {
            biased;
            _ = &mut release => unreachable!("the request is not let through"),
            _ = eventually("the release is under way", seen, is_sent) => {}
        }
        drop(release);
        if stage == Flow::Swallow {
            // A connection that has lost data cannot be used any more.
            scene.proxy.cut_commands();
        }
        scene.proxy.requests(Flow::Pass);
        scene.observer.sees(0, 0).await;

        let one = scene.semaphore.acquire().await.unwrap();
        scene.proxy.replies(Flow::Swallow);
        assert!(one.forget().await.is_err(), "no reply comes");
        scene.proxy.replies(Flow::Pass);
        let limit = || async { scene.observer.look().await.limit };
        eventually("consumed once", limit, |limit| *limit == LIMIT - 1).await;
        scene.observer.sees(0, 0).await;
    }
}
