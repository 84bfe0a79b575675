//! Tests of permits that move to another process.

use std::time::{Duration, Instant};

use redis_semaphore::{DetachedPermit, Error, Permit, Semaphore, SemaphoreClient};
use tokio::task::JoinSet;

use test_support::child::{self, Process};
use test_support::observer::{Observer, eventually, in_time, refreshed};
use test_support::proxy::{Flow, Proxy};
use test_support::server::{Server, shared_url, unique_name};

/// A duration that is longer than any test.
const LONG: Duration = Duration::from_secs(300);

async fn client(url: &str, name: &str, lease: Duration) -> Semaphore {
    let client = SemaphoreClient::connect(url).await.unwrap();
    client.semaphore(name).limit(3).lease(lease).build().unwrap()
}

fn assert_lost(result: Result<Permit, Error>, id: &str) {
    match result {
        Err(Error::Lost { operation: "adopt", id: lost, .. }) => assert_eq!(lost, id),
        other => panic!("{other:?}"),
    }
}

/// This is not a test, but a process that acquires a permit and detaches it.
#[tokio::test]
async fn a_process_that_detaches_its_permit() {
    let Some(name) = child::role() else {
        return;
    };
    let semaphore = client(&shared_url(), &name, Duration::from_secs(10)).await;
    let permit = semaphore.acquire_many(2).await.unwrap();
    child::say(&permit.fencing_token().to_string());
    child::say(&permit.detach().to_string());
    std::future::pending::<()>().await;
}

/// The process is killed after it has detached the permit. Another process waits during the whole
/// test.
#[tokio::test]
async fn a_detached_permit_outlives_its_process_and_no_waiter_precedes_the_adopter() {
    let name = unique_name();
    let lease = Duration::from_secs(3);
    let observer = Observer::new(&shared_url(), &name, 3).await;
    let mut first = Process::start("semaphore::adopt::a_process_that_detaches_its_permit", &name);
    let token: u64 = first.next().await.unwrap().parse().unwrap();
    let detached: DetachedPermit = first.next().await.unwrap().parse().unwrap();
    let elsewhere = client(&shared_url(), &name, LONG).await;
    let waiting = tokio::spawn(elsewhere.request().weight(3).acquire());
    observer.sees(2, 1).await;
    first.kill();

    let semaphore = client(&shared_url(), &name, lease).await;
    let old = detached.id().to_owned();
    let permit = semaphore.adopt(detached).await.unwrap();
    assert_eq!((permit.weight(), permit.fencing_token()), (2, token));
    let now = observer.sees(2, 1).await;
    assert_eq!(now.holders[0].id, permit.id());
    assert_ne!(permit.id(), old);
    // The adopter refreshes the permit.
    refreshed(&permit).await;
    observer.sees(2, 1).await;
    permit.release().await.unwrap();
    let next = in_time("the waiter's turn", waiting).await.unwrap().unwrap();
    assert!(next.fencing_token() > token);
    next.release().await.unwrap();
    observer.sees(0, 0).await;
}

#[tokio::test]
async fn only_one_of_many_adopters_gets_a_permit() {
    let name = unique_name();
    let observer = Observer::new(&shared_url(), &name, 3).await;
    let here = client(&shared_url(), &name, LONG).await;
    let there = client(&shared_url(), &name, LONG).await;
    for _ in 0..20 {
        let detached = here.acquire().await.unwrap().detach();
        let mut adopting = JoinSet::new();
        // Each process adopts several times, and may batch the adoptions in one call.
        for semaphore in [&here, &there].repeat(4) {
            let (semaphore, detached) = (semaphore.clone(), detached.clone());
            adopting.spawn(async move { semaphore.adopt(detached).await });
        }
        let mut adopted = Vec::new();
        for result in in_time("all replies", adopting.join_all()).await {
            match result {
                Ok(permit) => adopted.push(permit),
                refused => assert_lost(refused, detached.id()),
            }
        }
        assert_eq!(adopted.len(), 1);
        assert_eq!(observer.sees(1, 0).await.holders[0].id, adopted[0].id());
        adopted.remove(0).release().await.unwrap();
        // The permit was released, so no process can adopt it any more.
        assert_lost(there.adopt(detached.clone()).await, detached.id());
        observer.sees(0, 0).await;
    }
}

/// A process that knows a permit's ID can adopt the permit while another process still holds it.
#[tokio::test]
async fn a_holder_loses_its_permit_when_another_client_adopts_it() {
    let name = unique_name();
    let here = client(&shared_url(), &name, Duration::from_secs(9)).await;
    let there = client(&shared_url(), &name, LONG).await;
    let permit = here.acquire().await.unwrap();
    let text = format!("{} {} 1000 {name}", permit.id(), permit.fencing_token());
    let deadline = Instant::now() + permit.expires_in();
    let adopted = there.adopt(text.parse().unwrap()).await.unwrap();
    in_time("the loss", permit.lost()).await;
    assert!(Instant::now() < deadline);
    assert!(matches!(permit.release().await, Err(Error::Lost { .. })));
    adopted.release().await.unwrap();
}

#[tokio::test]
async fn a_detached_permit_is_not_held_and_its_process_can_adopt_it() {
    let name = unique_name();
    let observer = Observer::new(&shared_url(), &name, 3).await;
    let semaphore = client(&shared_url(), &name, LONG).await;
    let permit = semaphore.acquire().await.unwrap();
    let watch = permit.watch();
    let detached = permit.detach();
    assert!(!watch.is_held() && !watch.is_lost());
    in_time("the end", watch.ended()).await;
    assert!(detached.expires_in() > LONG / 2 && detached.expires_in() <= LONG);
    semaphore.adopt(detached).await.unwrap().release().await.unwrap();
    observer.sees(0, 0).await;
}

/// No process refreshes a detached permit.
#[tokio::test]
async fn a_permit_that_is_not_adopted_is_free_when_its_lease_expires() {
    let name = unique_name();
    let observer = Observer::new(&shared_url(), &name, 3).await;
    let semaphore = client(&shared_url(), &name, Duration::from_millis(600)).await;
    let detached = semaphore.acquire_many(3).await.unwrap().detach();
    in_time("the next turn", semaphore.acquire_many(3)).await.unwrap().release().await.unwrap();
    let id = detached.id().to_owned();
    assert_lost(semaphore.adopt(detached).await, &id);
    observer.sees(0, 0).await;
}

#[tokio::test]
async fn a_detached_permit_whose_deadline_has_passed_cannot_be_adopted() {
    let name = unique_name();
    let semaphore = client(&shared_url(), &name, LONG).await;
    let permit = semaphore.acquire().await.unwrap();
    // In this process, the permit's deadline has passed. On the server, the permit is still held.
    let text = format!("{} {} 0 {name}", permit.id(), permit.fencing_token());
    let lost: DetachedPermit = text.parse().unwrap();
    assert_lost(semaphore.adopt(lost).await, permit.id());
    permit.release().await.unwrap();
}

#[tokio::test]
async fn detaching_a_lost_permit_returns_an_expired_detached_permit() {
    let name = unique_name();
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let builder = client.semaphore(&name).limit(1).lease(Duration::from_millis(300));
    let semaphore = builder.auto_refresh(false).build().unwrap();
    let permit = semaphore.acquire().await.unwrap();
    in_time("the loss", permit.lost()).await;
    let watch = permit.watch();
    let detached = permit.detach();
    assert_eq!(detached.expires_in(), Duration::ZERO);
    assert!(watch.is_lost());
}

#[tokio::test]
async fn another_semaphores_permit_and_a_malformed_id_are_rejected() {
    let (one, other) = (unique_name(), unique_name());
    let observer = Observer::new(&shared_url(), &one, 3).await;
    let semaphore = client(&shared_url(), &one, LONG).await;
    let stranger = client(&shared_url(), &other, LONG).await;
    let detached = semaphore.acquire().await.unwrap().detach();
    let refused = stranger.adopt(detached.clone()).await.unwrap_err();
    let text = refused.to_string();
    assert!(matches!(refused, Error::Invalid { what: "permit", .. }), "{text}");
    assert!(text.contains(&one) && text.contains(&other), "{text}");
    let strange = format!("P:me:1:1000:short 1 1000 {one}").parse::<DetachedPermit>();
    assert!(matches!(strange, Err(Error::Invalid { what: "permit", .. })), "{strange:?}");
    observer.sees(1, 0).await;
    semaphore.adopt(detached).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_closed_semaphore_rejects_an_adoption_and_keeps_the_permit_adoptable() {
    let name = unique_name();
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let build = || client.semaphore(&name).limit(3).build().unwrap();
    let (closed, open) = (build(), build());
    let detached = open.acquire().await.unwrap().detach();
    closed.close();
    let refused = closed.adopt(detached.clone()).await;
    assert!(matches!(refused, Err(Error::Closed { .. })), "{refused:?}");
    open.adopt(detached.clone()).await.unwrap().release().await.unwrap();
    client.shutdown().await;
    let refused = open.adopt(detached).await;
    assert!(matches!(refused, Err(Error::Shutdown)), "{refused:?}");
}

/// A detached permit. The process that adopts it is behind a proxy.
struct Scene {
    server: Server,
    proxy: Proxy,
    observer: Observer,
    semaphore: Semaphore,
    detached: DetachedPermit,
}

impl Scene {
    async fn set() -> Self {
        let server = Server::start();
        let proxy = Proxy::start(server.port).await;
        let observer = Observer::new(&server.url(), "moving", 3).await;
        let elsewhere = client(&server.url(), "moving", LONG).await;
        let detached = elsewhere.acquire_many(2).await.unwrap().detach();
        let client = SemaphoreClient::builder().response_timeout(Duration::from_millis(500));
        let client = client.connect(&proxy.url()).await.unwrap();
        let semaphore = client.semaphore("moving").limit(3).lease(LONG).build().unwrap();
        semaphore.acquire().await.unwrap().release().await.unwrap();
        Self { server, proxy, observer, semaphore, detached }
    }

    fn adopt(&self) -> tokio::task::JoinHandle<Result<Permit, Error>> {
        let (semaphore, detached) = (self.semaphore.clone(), self.detached.clone());
        tokio::spawn(async move { semaphore.adopt(detached).await })
    }

    async fn is_adopted(&self) {
        let holder = async || self.observer.sees(2, 0).await.holders[0].id.clone();
        eventually("it is adopted", holder, |holder| *holder != self.detached.id()).await;
    }
}

#[tokio::test]
async fn an_adoption_is_retried_after_a_lost_reply() {
    let scene = Scene::set().await;
    scene.proxy.replies(Flow::Swallow);
    let adopting = scene.adopt();
    scene.is_adopted().await;
    let id = scene.observer.look().await.holders[0].id.clone();
    scene.proxy.replies(Flow::Pass);
    scene.proxy.cut_commands();
    let permit = in_time("its reply", adopting).await.unwrap().unwrap();
    assert_eq!(permit.id(), id);
    assert_eq!(scene.observer.sees(2, 0).await.holders[0].id, id);
    permit.release().await.unwrap();
    scene.observer.sees(0, 0).await;
}

/// The stage at which an adoption is dropped.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    /// The call arrives after the drop.
    BeforeTheServer,
    ReplySlow,
    /// The connection is cut.
    ReplyNever,
    /// The client's connection is closed. The network delivers the call after the release, which
    /// uses another connection.
    HungUp,
}

#[tokio::test]
async fn a_permit_is_released_if_its_adoption_is_dropped() {
    for stage in [Stage::BeforeTheServer, Stage::ReplySlow, Stage::ReplyNever, Stage::HungUp] {
        let scene = Scene::set().await;
        match stage {
            Stage::BeforeTheServer => scene.proxy.requests(Flow::Hold),
            Stage::ReplySlow => scene.proxy.replies(Flow::Hold),
            Stage::ReplyNever => scene.proxy.replies(Flow::Swallow),
            Stage::HungUp => scene.proxy.stick(true),
        }
        let adopting = scene.adopt();
        if matches!(stage, Stage::BeforeTheServer | Stage::HungUp) {
            let held = async || scene.proxy.held_requests();
            eventually("the call is under way", held, |held| *held > 0).await;
        } else {
            scene.is_adopted().await;
        }
        let removals = scene.server.calls("zrem");
        adopting.abort();
        let _ = adopting.await;
        match stage {
            Stage::ReplyNever => scene.proxy.cut_commands(),
            Stage::HungUp => {
                scene.proxy.hang_up();
                // The release arrives first and finds nothing. The adoption arrives after the
                // release.
                let now = async || scene.server.calls("zrem");
                eventually("a release has come", now, |now| *now > removals).await;
                scene.proxy.stick(false);
            }
            _ => {}
        }
        scene.proxy.requests(Flow::Pass);
        scene.proxy.replies(Flow::Pass);
        scene.observer.sees(0, 0).await;
    }
}

/// If an adopter is killed, its permit stays taken for one lease at most.
#[tokio::test]
async fn a_killed_adopters_permit_is_free_after_its_lease() {
    let name = unique_name();
    let observer = Observer::new(&shared_url(), &name, 3).await;
    let here = client(&shared_url(), &name, LONG).await;
    let detached = here.acquire_many(3).await.unwrap().detach();
    let role = format!("{detached}");
    let mut adopter = Process::start("semaphore::adopt::a_process_that_adopts", &role);
    assert_eq!(adopter.next().await.unwrap(), "adopted");
    adopter.kill();
    // The adopter's semaphore determines the lease.
    observer.sees(0, 0).await;
    assert_lost(here.adopt(detached.clone()).await, detached.id());
}

/// This is not a test, but a process that adopts the permit in its role, and holds it.
#[tokio::test]
async fn a_process_that_adopts() {
    let Some(text) = child::role() else {
        return;
    };
    let detached: DetachedPermit = text.parse().unwrap();
    let semaphore = client(&shared_url(), detached.name(), Duration::from_secs(1)).await;
    let _permit = semaphore.adopt(detached).await.unwrap();
    child::say("adopted");
    std::future::pending::<()>().await;
}
