//! Tests of calls from outside the I/O runtime: from another runtime, and from outside any runtime.
//! Such calls need a running I/O runtime.

mod ends;
mod inside;
pub(crate) mod none;
mod paused;

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use nix::sys::signal::Signal;
use redis_semaphore::{Error, Permit, Semaphore, SemaphoreClient};
use tokio::runtime::{Builder, Runtime};

use test_support::observer::{connected, eventually};
use test_support::server::{Server, shared_url, unique_name};

/// A deadline for calls that must end by themselves much earlier.
const DEADLINE: Duration = Duration::from_secs(60);
/// A timeout that is shorter than the time for which all permits are held.
const SHORT: Duration = Duration::from_millis(300);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Home {
    Runs,
    /// A task blocks the only worker.
    Blocked,
    Gone,
}

struct Scene {
    client: SemaphoreClient,
    semaphore: Semaphore,
    permits: Mutex<Vec<Permit>>,
}

/// Keeps the I/O runtime in the state described by [`Home`].
type Guard = Box<dyn std::any::Any>;

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn one_worker() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

impl Scene {
    async fn set(permits: u32) -> Arc<Self> {
        let builder = SemaphoreClient::builder().response_timeout(DEADLINE / 2);
        let client = connected(builder, &shared_url()).await;
        let semaphore = client.semaphore(unique_name()).limit(permits).build().unwrap();
        let scene = Self { client, semaphore, permits: Mutex::default() };
        for _ in 0..permits {
            let acquire = async || scene.semaphore.acquire().await;
            let permit = eventually("a permit", acquire, Result::is_ok).await.unwrap();
            scene.permits.lock().unwrap().push(permit);
        }
        Arc::new(scene)
    }

    /// Returns a scene with a wait that began in another runtime.
    async fn set_with_wait() -> (Arc<Self>, Ending) {
        let scene = Self::set(16).await;
        let waits = guest(one_thread, scene.semaphore.clone(), async |semaphore| {
            semaphore.acquire().await.map(drop)
        });
        let queued = async || scene.semaphore.inspect().await.map_or(0, |now| now.queued);
        eventually("it is queued", queued, |queued| *queued == 1).await;
        (scene, waits)
    }

    /// Connects in an I/O runtime, and brings that runtime into the given state afterwards.
    fn at(home: Home) -> (Arc<Self>, Guard, Ending) {
        let runtime = one_worker();
        let (scene, waits) = runtime.block_on(Self::set_with_wait());
        let guard: Guard = match home {
            Home::Gone => {
                drop(runtime);
                Box::new(())
            }
            Home::Blocked => Box::new((block_worker(&runtime), runtime)),
            Home::Runs => Box::new(runtime),
        };
        (scene, guard, waits)
    }

    fn permit(&self) -> Permit {
        self.permits.lock().unwrap().pop().expect("there are enough")
    }
}

type Ending = mpsc::Receiver<Result<(), Error>>;

/// Blocks the only worker until the sender is dropped.
fn block_worker(runtime: &Runtime) -> mpsc::Sender<()> {
    let ((unblock, blocked), (begun, is_begun)) = (mpsc::channel::<()>(), mpsc::channel());
    runtime.spawn(async move {
        begun.send(()).unwrap();
        let _ = blocked.recv();
    });
    is_begun.recv().unwrap();
    unblock
}

/// Makes the call in a new runtime and a new thread.
fn guest<T: Send + 'static, F: Future<Output = Result<(), Error>>>(
    runtime: fn() -> Runtime,
    with: T,
    call: impl FnOnce(T) -> F + Send + 'static,
) -> Ending {
    let (ended, ending) = mpsc::channel();
    thread::spawn(move || ended.send(runtime().block_on(call(with))));
    ending
}

type Call = fn(Arc<Scene>) -> BoxFuture<'static, Result<(), Error>>;

/// Each kind of call, except `doctor` and `shutdown`.
const CALLS: [(&str, Call); 19] = [
    ("try_acquire", |s| async move { s.semaphore.try_acquire().await.map(drop) }.boxed()),
    ("acquire", |s| async move { s.semaphore.acquire().await.map(drop) }.boxed()),
    ("acquire_timeout", acquire_timeout),
    ("the first acquire", first_acquire),
    ("release", |s| async move { s.permit().release().await }.boxed()),
    ("refresh", refresh),
    ("limit", |s| async move { s.semaphore.limit().await.map(drop) }.boxed()),
    ("set_limit", |s| async move { s.semaphore.set_limit(9).await.map(drop) }.boxed()),
    ("clear_limit", |s| async move { s.semaphore.clear_limit().await.map(drop) }.boxed()),
    ("the first set_limit", first_set_limit),
    ("inspect", |s| async move { s.semaphore.inspect().await.map(drop) }.boxed()),
    ("wake", |s| async move { s.semaphore.wake().await.map(drop) }.boxed()),
    ("add_permits", |s| async move { s.semaphore.add_permits(1).await.map(drop) }.boxed()),
    ("revoke", revoke),
    ("names", |s| async move { s.client.names().await.map(drop) }.boxed()),
    ("adopt", adopt),
    ("let_expire", |s| async move { s.permit().let_expire().await }.boxed()),
    ("forget", |s| async move { s.permit().forget().await }.boxed()),
    ("acquire_all", acquire_all),
];
const OK: &str = "Ok";
const END: &str = "Shutdown";

/// The result of a call of [`CALLS`] while the I/O runtime runs and all permits are held.
fn served(name: &str) -> &'static str {
    match name {
        "acquire_timeout" => "Timeout",
        // The user has no right to scan all keys.
        "names" => "Connect",
        _ => OK,
    }
}

fn acquire_timeout(scene: Arc<Scene>) -> BoxFuture<'static, Result<(), Error>> {
    async move { scene.semaphore.acquire_timeout(SHORT / 3).await.map(drop) }.boxed()
}

fn first_acquire(scene: Arc<Scene>) -> BoxFuture<'static, Result<(), Error>> {
    let first = scene.client.semaphore(unique_name()).limit(1).build().unwrap();
    async move { first.acquire().await.map(drop) }.boxed()
}

fn first_set_limit(scene: Arc<Scene>) -> BoxFuture<'static, Result<(), Error>> {
    let first = scene.client.semaphore(unique_name()).limit(1).build().unwrap();
    async move { first.set_limit(2).await.map(drop) }.boxed()
}

/// Revokes a permit that no client holds.
fn revoke(scene: Arc<Scene>) -> BoxFuture<'static, Result<(), Error>> {
    let id = format!("P:nobody.1:1:1000:{}", "0".repeat(22));
    async move { scene.semaphore.revoke(&id).await.map(drop) }.boxed()
}

fn adopt(scene: Arc<Scene>) -> BoxFuture<'static, Result<(), Error>> {
    let detached = scene.permit().detach();
    async move { scene.semaphore.adopt(detached).await.map(drop) }.boxed()
}

fn acquire_all(scene: Arc<Scene>) -> BoxFuture<'static, Result<(), Error>> {
    let first = || scene.client.semaphore(unique_name()).limit(1).build().unwrap();
    let requests = [first().request(), first().request()];
    async move { redis_semaphore::acquire_all(requests).await.map(drop) }.boxed()
}

fn refresh(scene: Arc<Scene>) -> BoxFuture<'static, Result<(), Error>> {
    let permit = scene.permit();
    async move {
        let refreshed = permit.refresh().await;
        scene.permits.lock().unwrap().push(permit);
        refreshed
    }
    .boxed()
}

fn doctor(scene: Arc<Scene>) -> BoxFuture<'static, Result<(), Error>> {
    async move { scene.client.doctor().await.map(drop) }.boxed()
}

fn shutdown(scene: Arc<Scene>) -> BoxFuture<'static, Result<(), Error>> {
    async move {
        scene.client.shutdown().await;
        Ok(())
    }
    .boxed()
}

fn ended(result: &Result<(), Error>) -> &'static str {
    match result {
        Ok(()) => OK,
        Err(Error::Shutdown) => END,
        Err(Error::Timeout { .. }) => "Timeout",
        Err(Error::Connect { .. }) => "Connect",
        Err(_) => "another error",
    }
}

/// Checks the result. Fails if the call hangs or panics.
fn ends(what: &str, ending: &Ending, as_wanted: &str) {
    match ending.recv_timeout(DEADLINE) {
        Ok(result) => assert_eq!(ended(&result), as_wanted, "{what}: {result:?}"),
        Err(failure) => panic!("{what}: {failure}"),
    }
}

#[test]
fn calls_in_other_runtimes_are_served() {
    for runtime in [one_thread as fn() -> Runtime, one_worker] {
        let (scene, guard, waits) = Scene::at(Home::Runs);
        for (name, call) in CALLS.into_iter().filter(|(name, _)| *name != "acquire") {
            ends(name, &guest(runtime, scene.clone(), call), served(name));
        }
        ends("a wait", &waits, OK);
        ends("acquire", &guest(runtime, scene.clone(), CALLS[1].1), OK);
        ends("doctor", &guest(runtime, scene.clone(), doctor), OK);
        ends("shutdown", &guest(runtime, scene, shutdown), OK);
        drop(guard);
    }
}

#[test]
fn calls_wait_while_the_io_runtime_is_blocked() {
    let (scene, guard, waits) = Scene::at(Home::Blocked);
    // Whether a permit is free in time depends on the order of the calls.
    let calls = CALLS.iter().filter(|(name, _)| *name != "acquire_timeout");
    let begun = calls.map(|(name, call)| (*name, guest(one_thread, scene.clone(), *call)));
    let begun: Vec<_> = begun.collect();
    let (unblock, runtime) = *guard.downcast::<(mpsc::Sender<()>, Runtime)>().unwrap();
    drop(unblock);
    let (waiting, others): (Vec<_>, Vec<_>) =
        begun.into_iter().partition(|(name, _)| *name == "acquire");
    for (name, ending) in others {
        ends(name, &ending, served(name));
    }
    // If `set_limit` was called last, its limit is too low for a further permit.
    runtime.block_on(scene.semaphore.clear_limit()).unwrap();
    ends("acquire", &waiting[0].1, OK);
    ends("a wait", &waits, OK);
    drop(runtime);
}

/// The I/O runtime runs, so the heartbeats find out the reason for the outage, and end the wait
/// with this reason.
#[test]
fn a_wait_in_another_runtime_reports_the_reason_for_an_outage() {
    let server = Server::start();
    let home = one_worker();
    let (_permit, semaphore) = home.block_on(async {
        let builder = SemaphoreClient::builder().response_timeout(Duration::from_secs(2));
        let builder =
            builder.outage_tolerance(Duration::ZERO).heartbeat_timeout(Duration::from_millis(900));
        let client = builder.connect(&server.url()).await.unwrap();
        let semaphore = client.semaphore("jobs").limit(1).build().unwrap();
        (semaphore.acquire().await.unwrap(), semaphore)
    });
    let (ended, ending) = mpsc::channel();
    let waiting = semaphore.clone();
    thread::spawn(move || ended.send(one_thread().block_on(waiting.acquire()).unwrap_err()));
    let queued = async || semaphore.inspect().await.unwrap().queued;
    home.block_on(eventually("it is queued", queued, |queued| *queued == 1));
    server.signal(Signal::SIGSTOP);
    let error = ending.recv_timeout(DEADLINE).unwrap();
    assert!(error.to_string().contains("no reply in time"), "{error}");
}

#[test]
fn calls_return_shutdown_after_the_io_runtime_has_ended() {
    let (scene, _, waits) = Scene::at(Home::Gone);
    ends("a wait", &waits, END);
    for (name, call) in CALLS {
        ends(name, &guest(one_worker, scene.clone(), call), END);
    }
    ends("doctor", &guest(one_thread, scene.clone(), doctor), END);
    ends("shutdown", &guest(one_thread, scene, shutdown), OK);
}
