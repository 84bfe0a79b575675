//! Tests of acquiring permits of several semaphores in one call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use redis_semaphore::{AcquireRequest, Error, Semaphore, SemaphoreClient, acquire_all};
use tokio::task::JoinSet;

use test_support::child::{self, Process};
use test_support::errors::unless_lost;
use test_support::observer::{Observer, in_time};
use test_support::server::{Server, shared_url, unique_name};

/// A duration that is longer than any test.
const LONG: Duration = Duration::from_secs(300);
const DEADLINE: Duration = Duration::from_secs(120);

const COUNT: usize = 5;
const LIMIT: u32 = 2;

async fn client(url: &str, names: &[String], lease: Duration) -> Vec<Semaphore> {
    let semaphores = SemaphoreClient::connect(url).await.unwrap();
    let build = |name| semaphores.semaphore(name).limit(LIMIT).lease(lease).build().unwrap();
    names.iter().map(build).collect()
}

fn names_of(name: &str) -> Vec<String> {
    (0..COUNT).map(|number| format!("{name}-{number}")).collect()
}

/// Returns requests for at least two of the semaphores, in any order and with any weight.
fn some_of(semaphores: &[Semaphore]) -> Vec<(usize, u32, AcquireRequest)> {
    let mut numbers: Vec<_> = (0..semaphores.len()).collect();
    fastrand::shuffle(&mut numbers);
    numbers.truncate(fastrand::usize(2..=semaphores.len()));
    let request = |number: usize| {
        let weight = fastrand::u32(1..=LIMIT);
        (number, weight, semaphores[number].request().weight(weight))
    };
    numbers.into_iter().map(request).collect()
}

/// The tasks belong to two processes. If calls did not acquire in one order, the tasks would soon
/// wait for each other's permits.
#[tokio::test]
async fn acquire_all_calls_with_overlapping_sets_do_not_deadlock() {
    let names = names_of(&unique_name());
    let held: Arc<[AtomicU32; COUNT]> = Arc::default();
    let mut tasks = JoinSet::new();
    for _ in 0..2 {
        let semaphores = client(&shared_url(), &names, LONG).await;
        for _ in 0..12 {
            let (semaphores, held) = (semaphores.clone(), held.clone());
            tasks.spawn(async move {
                for _ in 0..10 {
                    let some = some_of(&semaphores);
                    let requests = some.iter().map(|(.., request)| request.clone());
                    let permits = acquire_all(requests).await.unwrap();
                    for ((number, weight, _), permit) in some.iter().zip(permits.as_slice()) {
                        let now = held[*number].fetch_add(*weight, Ordering::SeqCst) + weight;
                        assert!(now <= LIMIT, "{now} held of number {number}");
                        assert_eq!(permit.weight(), *weight, "in the order of the requests");
                    }
                    tokio::task::yield_now().await;
                    for (number, weight, _) in &some {
                        held[*number].fetch_sub(*weight, Ordering::SeqCst);
                    }
                    match fastrand::bool() {
                        true => permits.release().await.unwrap(),
                        false => drop(permits),
                    }
                }
            });
        }
    }
    let done = tokio::time::timeout(DEADLINE, tasks.join_all()).await;
    assert!(done.is_ok(), "a deadlock");
    for name in &names {
        Observer::new(&shared_url(), name, LIMIT).await.sees(0, 0).await;
    }
}

/// This is not a test, but a process that acquires repeatedly.
#[tokio::test]
async fn a_process_that_acquires_sets() {
    let Some(name) = child::role() else {
        return;
    };
    let lease = Duration::from_secs(2);
    let semaphores = client(&shared_url(), &names_of(&name), lease).await;
    let mut tasks = JoinSet::new();
    for _ in 0..6 {
        let semaphores = semaphores.clone();
        tasks.spawn(async move {
            let mut turns = 0;
            while turns < 10 {
                let requests = some_of(&semaphores).into_iter().map(|(.., request)| request);
                match acquire_all(requests).await {
                    Ok(permits) => unless_lost(permits.release().await),
                    // On a busy machine, a lease may expire.
                    Err(Error::Lost { .. }) => continue,
                    Err(error) => panic!("{error}"),
                }
                turns += 1;
                child::say("turn");
            }
        });
    }
    tasks.join_all().await;
    child::say("done");
}

/// The killed process's permits and requests delay other processes for one lease at most.
#[tokio::test]
async fn a_process_killed_during_acquire_all_causes_no_deadlock() {
    let name = unique_name();
    let test = "semaphore::acquire_all::a_process_that_acquires_sets";
    let [mut killed, mut one, mut other] = [(); 3].map(|()| Process::start(test, &name));
    for _ in 0..5 {
        assert_eq!(killed.next().await.unwrap(), "turn");
    }
    killed.kill();
    for process in [&mut one, &mut other] {
        while process.next().await.expect("it is not done") != "done" {}
    }
}

#[tokio::test]
async fn acquire_all_rejects_duplicate_semaphores_and_invalid_requests() {
    let names = names_of(&unique_name());
    let one = client(&shared_url(), &names, LONG).await;
    let again = client(&shared_url(), &names, LONG).await;
    let (observer, too_early) = (Observer::new(&shared_url(), &names[0], LIMIT).await, LONG * 100);
    // Two processes that use different addresses of two servers could deadlock.
    let other = Server::start();
    let elsewhere = client(&other.url(), &names, LONG).await;
    for same in [&again[0], &elsewhere[0]] {
        let twice = acquire_all([one[0].request(), one[1].request(), same.request()]).await;
        let refused = twice.unwrap_err();
        assert!(matches!(refused, Error::Invalid { what: "requests", .. }), "{refused}");
        assert!(refused.to_string().contains(&names[0]), "{refused}");
    }
    for wrong in [one[1].request().weight(0), one[1].request().head_start(too_early)] {
        let refused = acquire_all([one[0].request(), wrong]).await;
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    }
    assert_eq!(observer.look().await.last_token, 0, "nothing was sent");
    let none = acquire_all([]).await.unwrap();
    assert!(!none.is_lost() && none.as_slice().is_empty());
    none.release().await.unwrap();
}

/// Two semaphores in the order of their keys. Another client holds all permits of the second
/// semaphore.
struct Scene {
    server: Server,
    semaphores: Vec<Semaphore>,
    observers: Vec<Observer>,
    second: redis_semaphore::Permit,
}

impl Scene {
    async fn set(lease: Duration) -> Self {
        let server = Server::start();
        let names = ["a".to_owned(), "b".to_owned()];
        let mut observers = Vec::new();
        for name in &names {
            observers.push(Observer::new(&server.url(), name, LIMIT).await);
        }
        let others = client(&server.url(), &names, LONG).await;
        let second = others[1].acquire_many(LIMIT).await.unwrap();
        let semaphores = client(&server.url(), &names, lease).await;
        Self { server, semaphores, observers, second }
    }

    /// Returns the requests in reverse order.
    fn requests(&self) -> [AcquireRequest; 2] {
        [self.semaphores[1].request(), self.semaphores[0].request()]
    }

    /// Waits until the call holds a permit of the first semaphore and is queued for a permit of the
    /// second semaphore.
    async fn waits(&self) {
        self.observers[0].sees(1, 0).await;
        self.observers[1].sees(LIMIT.into(), 1).await;
    }

    async fn has_left(&self) {
        self.observers[0].sees(0, 0).await;
        self.observers[1].sees(LIMIT.into(), 0).await;
    }
}

#[tokio::test]
async fn acquire_all_ends_with_the_last_grant_and_one_release_ends_all_permits() {
    let scene = Scene::set(LONG).await;
    let waiting = tokio::spawn(acquire_all(scene.requests()));
    scene.waits().await;
    scene.second.release().await.unwrap();
    let permits = in_time("all of them", waiting).await.unwrap().unwrap();
    let held = [scene.observers[1].sees(1, 0).await, scene.observers[0].sees(1, 0).await];
    let ids = held.map(|seen| seen.holders[0].id.clone());
    assert!(permits.as_slice().iter().map(|permit| permit.id()).eq(&ids));
    drop(permits.release());
    scene.observers[0].sees(0, 0).await;
    scene.observers[1].sees(0, 0).await;
}

/// The shortest timeout is the deadline for all requests, and the acquired permits are released.
#[tokio::test]
async fn a_timeout_of_acquire_all_releases_all_permits() {
    let scene = Scene::set(LONG).await;
    let [second, first] = scene.requests();
    let timeout = Duration::from_secs(1);
    let started = Instant::now();
    let refused = acquire_all([second.timeout(LONG), first.timeout(timeout)]).await.unwrap_err();
    assert!(started.elapsed() >= timeout);
    match refused {
        Error::Timeout { semaphore, waited, position, .. } => {
            assert_eq!((&*semaphore, position), ("b", Some(1)));
            assert!(waited >= timeout);
        }
        other => panic!("{other}"),
    }
    scene.has_left().await;
}

#[tokio::test]
async fn a_failure_of_acquire_all_releases_all_permits() {
    let scene = Scene::set(LONG).await;
    let [second, first] = scene.requests();
    let refused = acquire_all([second.weight(LIMIT + 1), first]).await;
    assert!(matches!(refused, Err(Error::TooHeavy { .. })), "{refused:?}");
    scene.has_left().await;

    let waiting = tokio::spawn(acquire_all(scene.requests()));
    scene.waits().await;
    scene.semaphores[1].close();
    let refused = in_time("the end", waiting).await.unwrap();
    assert!(matches!(refused, Err(Error::Closed { .. })), "{refused:?}");
    scene.has_left().await;
}

#[tokio::test]
async fn a_dropped_acquire_all_releases_all_permits() {
    let scene = Scene::set(LONG).await;
    let waiting = tokio::spawn(acquire_all(scene.requests()));
    scene.waits().await;
    waiting.abort();
    scene.has_left().await;
}

/// No work was started, so the permits are released instead of left to expire.
#[tokio::test]
async fn a_dropped_acquire_all_releases_permits_despite_let_expire_on_drop() {
    let scene = Scene::set(LONG).await;
    let semaphores = SemaphoreClient::connect(&scene.server.url()).await.unwrap();
    let builder = semaphores.semaphore("a").limit(LIMIT).lease(LONG).let_expire_on_drop(true);
    let first = builder.build().unwrap();
    let requests = || [first.request(), scene.semaphores[1].request()];
    let waiting = tokio::spawn(acquire_all(requests()));
    scene.waits().await;
    waiting.abort();
    scene.has_left().await;
    // The next permit of the semaphore is left to expire, as the semaphore's configuration
    // requires.
    scene.second.release().await.unwrap();
    drop(acquire_all(requests()).await.unwrap());
    scene.observers[1].sees(0, 0).await;
    scene.observers[0].sees(1, 0).await;
}

#[tokio::test]
async fn a_loss_during_acquire_all_ends_the_wait_and_releases_all_permits() {
    let scene = Scene::set(Duration::from_millis(900)).await;
    let waiting = tokio::spawn(acquire_all(scene.requests()));
    scene.waits().await;
    redis::cmd("DEL").arg("sem:{a}:permits").exec(&mut scene.server.connect()).unwrap();
    match in_time("the loss", waiting).await.unwrap() {
        Err(Error::Lost { semaphore, operation: "acquire_all", .. }) => assert_eq!(semaphore, "a"),
        other => panic!("{other:?}"),
    }
    scene.has_left().await;
}

#[tokio::test]
async fn all_permits_count_as_lost_if_one_is_lost_and_the_others_are_released() {
    let scene = Scene::set(Duration::from_millis(900)).await;
    scene.second.release().await.unwrap();
    let [second, first] = [&scene.semaphores[1], &scene.semaphores[0]].map(Semaphore::request);
    let permits = acquire_all([second, first]).await.unwrap();
    assert!(!permits.is_lost());
    redis::cmd("DEL").arg("sem:{a}:permits").exec(&mut scene.server.connect()).unwrap();
    in_time("the loss", permits.lost()).await;
    assert!(permits.is_lost());
    match permits.release().await {
        Err(Error::Lost { semaphore, operation: "release", .. }) => assert_eq!(semaphore, "a"),
        other => panic!("{other:?}"),
    }
    scene.observers[1].sees(0, 0).await;
}

#[tokio::test]
async fn semaphores_of_two_servers_may_have_the_same_name_if_their_prefixes_differ() {
    let servers = [Server::start(), Server::start()];
    let mut requests = Vec::new();
    for (server, prefix) in servers.iter().zip(["one", "other"]) {
        let builder = SemaphoreClient::builder().prefix(prefix);
        let client = builder.connect(&server.admin_url()).await.unwrap();
        requests.push(client.semaphore("a").limit(1).build().unwrap().request());
    }
    let permits = in_time("all permits", acquire_all(requests)).await.unwrap();
    assert_eq!(permits.as_slice().len(), 2);
    permits.release().await.unwrap();
}
