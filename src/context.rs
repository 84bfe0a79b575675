//! What a process has once, whatever semaphores it uses: the servers, the router of messages, and
//! the runtime that connected, which is home to all background work.

use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::error::Error;
use crate::metrics::Meters;
use crate::releases::ReleasesByName;
use crate::runtime::{Deadline, Timer, within};
use crate::server::{Servers, user_timeout};
use crate::wakeup::{self, Listener, Router};

const MAX_DRIVERS: usize = 16;
/// A program that ends waits no longer, however patient its calls are.
const LONGEST_END: Duration = Duration::from_secs(10);

pub(crate) struct Context {
    pub(crate) servers: Servers,
    pub(crate) prefix: String,
    /// The client that this process is, on the server.
    pub(crate) client: String,
    pub(crate) router: Arc<Router>,
    /// What its semaphores have given up.
    pub(crate) releases: ReleasesByName,
    pub(crate) settings: ClientSettings,
    pub(crate) meters: Meters,
    /// Acquisitions are counted from a random number on.
    acquisitions: AtomicU64,
    /// With a random key.
    hasher: RandomState,
    /// Callers that drive calls themselves.
    drivers: Semaphore,
    /// The one that connected: that of a caller may end while calls are under way.
    runtime: Handle,
    /// What a shutdown waits for.
    tasks: TaskTracker,
    /// Cancelled by a shutdown, at the end of the runtime, and when nobody has this any more.
    end: CancellationToken,
    _ends: DropGuard,
    /// Until when the rest may hold up the end of the runtime. Locked while some of it goes out.
    last_moment: Mutex<Option<std::time::Instant>>,
    /// The process that connected.
    process: u32,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientSettings {
    pub(crate) response_timeout: Duration,
    pub(crate) heartbeat_timeout: Duration,
    /// As it was set: see [`tolerance`](Self::tolerance).
    pub(crate) outage_tolerance: Duration,
    /// How many names become labels.
    pub(crate) max_metric_names: usize,
}

impl ClientSettings {
    /// How long a call that nobody queues for may be repeated.
    pub(crate) fn call_timeout(&self) -> Duration {
        self.response_timeout * 2
    }

    /// For how long a wait survives an outage. Any call is repeated for as long as
    /// [`call_timeout`](Self::call_timeout).
    pub(crate) fn tolerance(&self) -> Duration {
        self.outage_tolerance.max(self.call_timeout())
    }

    /// For how long what was sent may reach the server when its connection has been given up.
    pub(crate) fn longest_trip(&self) -> Duration {
        user_timeout(self.response_timeout) + self.response_timeout
    }

    /// How often the server must hear of our queued requests.
    pub(crate) fn heartbeat_interval(&self) -> Duration {
        self.heartbeat_timeout / 3
    }
}

/// Why a task has not done what it was to do.
pub(crate) enum Undone {
    /// Its runtime does not run.
    Stalled,
    Ended,
}

impl Context {
    /// In the current runtime, which listens from now on.
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
        Arc::new(Self {
            servers,
            prefix,
            client,
            router,
            releases: ReleasesByName::new(),
            settings,
            meters,
            acquisitions: AtomicU64::new(uuid::Uuid::new_v4().as_u64_pair().1),
            hasher: RandomState::new(),
            drivers: Semaphore::new(MAX_DRIVERS),
            runtime: Handle::current(),
            tasks: TaskTracker::new(),
            _ends: end.clone().drop_guard(),
            end,
            last_moment: Mutex::default(),
            process: std::process::id(),
        })
    }

    /// A forked process has the memory of the one that connected, and must not use its connections;
    /// nor does anything run there that could make a call.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        match self.is_forked() {
            false => Ok(()),
            true => Err(Error::invalid(
                "process",
                "this process was forked from the process that connected, and cannot use its \
                 connections: connect again in this process",
            )),
        }
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// For one more caller that drives its calls itself, if there may be one more. Each that is
    /// left alone in the middle may keep one of the connection's 50 places for commands to send.
    pub(crate) fn try_drive(&self) -> Option<SemaphorePermit<'_>> {
        self.drivers.try_acquire().ok()
    }

    /// A number that no acquisition has had, in any process. Nobody can guess it from those before:
    /// who knows the ID of one that waits can forge the message of its grant. A keyed hash costs
    /// a fraction of what the system takes for random bytes.
    pub(crate) fn next_number(&self, created: Instant) -> u128 {
        let count = self.acquisitions.fetch_add(1, Ordering::Relaxed);
        // In the order in which they are made, which batchers like best.
        u128::from(count) << 64 | u128::from(self.hasher.hash_one((count, created)))
    }

    /// Spawns at home, or in the runtime of the caller once home has ended, or after a shutdown.
    /// Where no runtime is left the future is dropped.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        match Handle::try_current() {
            Ok(current) if self.is_shut_down() => current.spawn(future),
            _ => self.runtime.spawn(future),
        };
    }

    /// As [`spawn`](Self::spawn), for what a shutdown waits for.
    pub(crate) fn spawn_tracked(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.spawn(self.tasks.track_future(future));
    }

    /// Waits until then at most, whatever runtime the caller is in: or until home has ended, where
    /// that alone could tell the time. `None`: never.
    pub(crate) async fn until<T>(
        &self,
        deadline: Option<Instant>,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let Some(deadline) = deadline else { return Some(work.await) };
        let (mut work, mut timer) = (pin!(work), Timer::new(deadline));
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => timer.poll(&self.runtime, cx).map(|is_then| {
                if !is_then {
                    self.end_with_home();
                }
                None
            }),
        })
        .await
    }

    /// Has a task do what is over by then: others may depend on it, or the caller lack a runtime
    /// for it.
    pub(crate) async fn in_a_task<T: Send + 'static>(
        &self,
        deadline: Deadline,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Undone> {
        let (answer, done) = oneshot::channel();
        self.spawn(async move {
            // Whoever asked may have gone.
            let _ = answer.send(work.await);
        });
        match within(&self.runtime, deadline, done).await {
            Some(done) => done.map_err(|_| Undone::Ended),
            None => Err(Undone::Stalled),
        }
    }

    /// Whether it was shut down, or its runtime has ended.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.end.is_cancelled()
    }

    /// Whether somebody has shut it down: else its runtime has ended.
    pub(crate) fn was_told_to_end(&self) -> bool {
        self.tasks.is_closed()
    }

    /// The tasks of a runtime that ends are dropped one by one: the first that notices says so.
    pub(crate) fn end_with_home(&self) {
        self.end.cancel();
        self.router.end_all();
    }

    /// When [`is_shut_down`](Self::is_shut_down).
    pub(crate) fn end(&self) -> CancellationToken {
        self.end.clone()
    }

    /// Does what is left to do at the end of the runtime that connected, which waits for that, one
    /// after the other, and for so long. `None` while it runs, and where nothing more can be done.
    pub(crate) fn at_the_end<T>(&self, deliver: impl FnOnce(Duration) -> T) -> Option<T> {
        if self.is_forked() || !self.servers.are_away() || self.runs() {
            return None;
        }
        self.end_with_home();
        let mut last_moment = self.last_moment.lock().expect("nothing panics while it is locked");
        let now = std::time::Instant::now();
        let patience = self.settings.response_timeout.min(LONGEST_END);
        let last = *last_moment.get_or_insert(now + patience);
        let time = last.saturating_duration_since(now);
        (!time.is_zero()).then(|| deliver(time))
    }

    /// Whether the runtime that connected has not begun to end: then it drops what is spawned.
    pub(crate) fn runs(&self) -> bool {
        let probe = self.runtime.spawn(std::future::pending::<()>());
        let runs = !probe.is_finished();
        probe.abort();
        runs
    }

    /// Ends all background work, and waits for it. What takes longer than patience lasts goes on.
    pub(crate) async fn shut_down(&self) {
        if self.is_forked() {
            return;
        }
        self.tasks.close();
        self.end.cancel();
        self.router.end_all();
        let deadline = Instant::now() + self.settings.call_timeout();
        if self.until(Some(deadline), self.tasks.wait()).await.is_none() {
            tracing::warn!("shut down before Redis took all permits back; their leases will end");
            // It was waited for long enough.
            let mut last = self.last_moment.lock().expect("nothing panics while it is locked");
            last.get_or_insert_with(std::time::Instant::now);
        }
    }
}

/// Ends all semaphores when their runtime ends, in which case it is dropped, and in a shutdown.
struct AtTheEnd {
    router: Arc<Router>,
    end: CancellationToken,
}

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        self.end.cancel();
        self.router.end_all();
    }
}
