//! The state that all semaphores of a client share: the servers, the message router, and the I/O
//! runtime.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use tokio::runtime::{Builder, Handle};
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::diagnosis::connect::Access;
use crate::error::{Error, Rounded};
use crate::lock::Lock;
use crate::metrics::Meters;
use crate::releases::ReleasesByName;
use crate::runtime::{EndTimer, Interruption, is_current, until};
use crate::server::{Servers, user_timeout};
use crate::wakeup::{self, Listener, Router};

/// When the I/O runtime ends, it waits up to the response timeout for remaining calls, such as
/// releases. If the response timeout is longer than this constant, the runtime waits up to this
/// constant.
const LONGEST_END: Duration = Duration::from_secs(10);

pub(crate) struct Context {
    pub(crate) servers: Servers,
    pub(crate) prefix: String,
    /// The client ID of this process.
    pub(crate) client: String,
    pub(crate) router: Arc<Router>,
    /// The dropped permits and canceled waits of this process that the server must still release.
    pub(crate) releases: ReleasesByName,
    pub(crate) settings: ClientSettings,
    pub(crate) meters: Meters,
    /// Counts acquisitions, starting at a random number.
    acquisitions: AtomicU64,
    hasher: RandomState,
    /// The I/O runtime. It runs all calls, because the runtime of a caller may end while a call is
    /// in flight.
    runtime: Handle,
    /// The tasks for which a shutdown waits.
    tasks: TaskTracker,
    /// Canceled by a shutdown, by the end of the I/O runtime, and when the last reference to this
    /// context is dropped.
    end: CancellationToken,
    _ends: DropGuard,
    /// The calls that remain when the I/O runtime ends. `None` once that runtime has ended, and
    /// after a shutdown that has timed out.
    remaining: Lock<Option<Vec<Remaining>>>,
    /// `None` for a server in memory.
    _end_timer: Option<EndTimer>,
    process: u32,
}

/// Calls that remain when the I/O runtime ends, such as releases.
pub(crate) struct Remaining {
    /// The number of requests in these calls.
    pub(crate) requests: usize,
    pub(crate) calls: BoxFuture<'static, Result<(), Error>>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientSettings {
    pub(crate) response_timeout: Duration,
    pub(crate) heartbeat_timeout: Duration,
    /// The configured value. Use [`tolerance`](Self::tolerance).
    pub(crate) outage_tolerance: Duration,
    /// The maximum number of semaphore names that become labels of metrics.
    pub(crate) max_metric_names: usize,
    pub(crate) access: Access,
}

impl ClientSettings {
    /// How long a call that does not queue is retried.
    pub(crate) fn call_timeout(&self) -> Duration {
        self.response_timeout * 2
    }

    /// How long a wait survives an outage. The result is never shorter than
    /// [`call_timeout`](Self::call_timeout).
    pub(crate) fn tolerance(&self) -> Duration {
        self.outage_tolerance.max(self.call_timeout())
    }

    /// How long a call may still reach the server after its connection was given up. Later, the
    /// call is assumed to be lost.
    pub(crate) fn longest_trip(&self) -> Duration {
        user_timeout(self.response_timeout) + self.response_timeout
    }

    pub(crate) fn heartbeat_interval(&self) -> Duration {
        self.heartbeat_timeout / 3
    }
}

impl Context {
    /// Creates the context. From now on, the current runtime is the I/O runtime, and receives
    /// messages.
    pub(crate) fn new(
        servers: Servers,
        prefix: String,
        client: String,
        router: Router,
        listener: Listener,
        settings: ClientSettings,
        meters: Meters,
    ) -> Arc<Self> {
        let (router, end) = (Arc::new(router), CancellationToken::new());
        let listen = wakeup::listen(router.clone(), listener);
        let at_the_end = AtTheEnd { router: router.clone(), end: end.clone() };
        tokio::spawn(async move {
            at_the_end.end.run_until_cancelled(listen).await;
        });
        let end_timer = |context: Weak<Self>| {
            EndTimer::new(move || _ = context.upgrade().map(|context| context.make_remaining()))
        };
        Arc::new_cyclic(|context| Self {
            _end_timer: servers.are_away().then(|| end_timer(context.clone())),
            servers,
            prefix,
            client,
            router,
            releases: ReleasesByName::new(),
            settings,
            meters,
            acquisitions: AtomicU64::new(uuid::Uuid::new_v4().as_u64_pair().1),
            hasher: RandomState::new(),
            runtime: Handle::current(),
            tasks: TaskTracker::new(),
            _ends: end.clone().drop_guard(),
            end,
            remaining: Lock::new(Some(Vec::new())),
            process: std::process::id(),
        })
    }

    /// Fails in a forked process. Such a process must not use the connections that it inherited,
    /// and has no threads that could make a call.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        match self.is_forked() {
            false => Ok(()),
            true => Err(Error::invalid(
                "process",
                "this process was forked from the process that connected and cannot use its \
                 connections: connect again in this process",
            )),
        }
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    pub(crate) fn process(&self) -> u32 {
        self.process
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Returns a number that no acquisition in any process has had. The number must be hard to
    /// guess from earlier numbers: a client that knows the ID of a waiting request can forge the
    /// grant message. A keyed hash is much faster than the system's random bytes.
    pub(crate) fn next_number(&self, created: Instant) -> u128 {
        let count = self.acquisitions.fetch_add(1, Ordering::Relaxed);
        // The count makes the number unique, and the hash makes the number hard to guess.
        u128::from(count) << 64 | u128::from(self.hasher.hash_one((count, created)))
    }

    /// Spawns the future on the I/O runtime. If that runtime has ended, the future is dropped.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(future);
    }

    /// Spawns the future as [`spawn`](Self::spawn) does. A shutdown waits for the future.
    pub(crate) fn spawn_tracked(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.spawn(self.tasks.track_future(future));
    }

    /// Waits for `work`, in any runtime, until the deadline or the end of the I/O runtime. If
    /// `deadline` is `None`, only `work` ends the wait.
    pub(crate) async fn until<T>(
        &self,
        deadline: Option<Instant>,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let Some(deadline) = deadline else { return Some(work.await) };
        let done = until(&self.runtime, deadline, work).await;
        if matches!(done, Err(Interruption::IoRuntime)) {
            self.end_all();
        }
        done.ok()
    }

    /// Runs `work` in a task of the I/O runtime. The task continues if the caller drops its future.
    pub(crate) async fn in_a_task<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        self.check_process()?;
        match self.runtime.spawn(work).await {
            Ok(done) => done,
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                Err(_) => Err(Error::Shutdown),
            },
        }
    }

    /// Returns whether the client was shut down or its runtime has ended.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.end.is_cancelled()
    }

    /// Ends all semaphores: see the function [`end_all`].
    pub(crate) fn end_all(&self) {
        end_all(&self.router, &self.end);
    }

    /// Returns a token that is canceled when [`is_shut_down`](Self::is_shut_down) becomes true.
    pub(crate) fn end(&self) -> CancellationToken {
        self.end.clone()
    }

    /// Makes calls in a thread, because the I/O runtime ends or has ended. If a task that the
    /// runtime drops at its end calls this method, the thread starts after all tasks were dropped,
    /// and the end of the runtime waits for the thread. Otherwise the thread starts now, and
    /// nothing waits for the thread: dropping a permit never blocks. In a forked process, with a
    /// server in memory, or if the I/O runtime still runs, no calls are made.
    pub(crate) fn at_the_end(&self, remaining: Remaining) {
        if self.is_forked() || !self.servers.are_away() || self.runs() {
            return;
        }
        self.end_all();
        if is_current(&self.runtime)
            && let Some(all) = &mut *self.remaining.lock()
        {
            return all.push(remaining);
        }
        self.make_calls(vec![remaining]);
    }

    /// Makes the remaining calls, because the I/O runtime has dropped all its tasks.
    fn make_remaining(&self) {
        let remaining = self.remaining.lock().take().unwrap_or_default();
        if let Some(making) = self.make_calls(remaining) {
            // If the thread has panicked, the panic was reported there.
            let _ = making.join();
        }
    }

    /// Makes calls in a thread, because a runtime cannot be driven inside of another runtime. The
    /// thread stops after the response timeout, and at the latest after [`LONGEST_END`].
    fn make_calls(&self, remaining: Vec<Remaining>) -> Option<JoinHandle<()>> {
        if remaining.is_empty() {
            return None;
        }
        self.servers.leave_connections();
        let patience = self.settings.response_timeout.min(LONGEST_END);
        let thread = std::thread::Builder::new().name("redis-semaphore".to_owned());
        let making = thread.spawn(move || make(remaining, patience));
        making.inspect_err(|error| warn_of_expiry("thread", error)).ok()
    }

    /// Returns whether the I/O runtime still runs. A runtime that ends drops a new task
    /// immediately.
    pub(crate) fn runs(&self) -> bool {
        let probe = self.runtime.spawn(std::future::pending::<()>());
        let runs = !probe.is_finished();
        probe.abort();
        runs
    }

    /// Ends all background work. Waits until the work has ended, but no longer than the call
    /// timeout. Work that takes longer continues.
    pub(crate) async fn shut_down(&self) {
        if self.is_forked() {
            return;
        }
        self.tasks.close();
        self.end_all();
        let deadline = Instant::now() + self.settings.call_timeout();
        if self.until(Some(deadline), self.tasks.wait()).await.is_none() {
            tracing::warn!(
                "shutdown ended before Redis confirmed all releases; they are retried while the \
                 runtime runs, and otherwise the leases expire"
            );
            // Remaining calls must not delay the end of the runtime again.
            *self.remaining.lock() = None;
        }
    }
}

/// Ends all semaphores, because of a shutdown or the end of the I/O runtime. That runtime drops its
/// tasks one by one. Each task and caller that notices the end calls this function. Only the first
/// call has an effect.
fn end_all(router: &Router, end: &CancellationToken) {
    if !end.is_cancelled() {
        end.cancel();
        router.end_all();
    }
}

fn warn_of_expiry(what: &str, error: &std::io::Error) {
    tracing::warn!(%error, "no {what} can be started, so the remaining permits and requests expire");
}

/// Makes all calls, and reports the requests that Redis has not confirmed after `patience`.
fn make(remaining: Vec<Remaining>, patience: Duration) {
    let requests = Cell::new(remaining.iter().map(|remaining| remaining.requests).sum::<usize>());
    let failure = Cell::new(None);
    let calls = remaining.into_iter().map(async |remaining| match remaining.calls.await {
        Ok(()) => requests.set(requests.get() - remaining.requests),
        Err(error) => failure.set(Some(error)),
    });
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return warn_of_expiry("runtime", &error),
    };
    // The requests that are not confirmed in time are counted below.
    let _ = runtime.block_on(async { timeout(patience, join_all(calls)).await });
    // A pending name resolution would delay a normal shutdown.
    runtime.shutdown_background();
    let requests = requests.get();
    if requests > 0 {
        let late = || format!("no reply within {}", Rounded(patience));
        tracing::warn!(
            requests,
            error = failure.take().map_or_else(late, |error| error.to_string()),
            "the runtime ended before Redis confirmed all releases; the remaining permits and \
             requests expire"
        );
    }
}

/// Ends all semaphores when this value is dropped. A shutdown drops the value, and a runtime that
/// ends drops it, too.
struct AtTheEnd {
    router: Arc<Router>,
    end: CancellationToken,
}

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        end_all(&self.router, &self.end);
    }
}
