//! What all semaphores of a process share: the servers, the table of waits, and the worker's inbox.

use std::collections::HashMap;
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};

use crate::protocol::word;
use crate::runtime::{Timer, Watch};
use crate::semaphore::claim::Claim;
use crate::semaphore::gate::Gate;
use crate::semaphore::numbered::Numbered;
use crate::semaphore::worker::Task;
use crate::server::{Servers, user_timeout};
use crate::wakeup::Wakeups;

const MOST_DRIVERS: usize = 16;

pub(crate) struct Shared {
    pub(crate) servers: Servers,
    pub(crate) prefix: String,
    /// The name of this process, so that `inspect` tells who holds.
    pub(crate) name: String,
    /// What all its words begin with.
    pub(crate) words: String,
    pub(crate) wakeups: Wakeups,
    pub(crate) settings: ClientSettings,
    gate_numbers: AtomicU64,
    /// Claims are counted from a random number on.
    claims: AtomicU64,
    /// With a random key.
    hasher: RandomState,
    /// Callers that drive calls themselves.
    drivers: AtomicUsize,
    /// How many messages came that no script has sent.
    pub(crate) strange_messages: AtomicU64,
    waits: Mutex<Numbered<Arc<Claim>>>,
    /// All that there are, by name: some may have been built with the same one.
    gates: Mutex<HashMap<String, Vec<Weak<Gate>>>>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientSettings {
    pub(crate) response_timeout: Duration,
    pub(crate) liveness: Duration,
    pub(crate) outage_tolerance: Duration,
}

impl ClientSettings {
    /// How long a call that nobody queues for may be repeated.
    pub(crate) fn patience(&self) -> Duration {
        self.response_timeout * 2
    }

    /// For how long what was sent may reach the server when its connection has been given up.
    pub(crate) fn longest_trip(&self) -> Duration {
        user_timeout(self.response_timeout) + self.response_timeout
    }

    /// How often the server must hear of our queued requests.
    pub(crate) fn ask_interval(&self) -> Duration {
        self.liveness / 3
    }
}

impl Shared {
    pub(crate) fn new(
        servers: Servers,
        prefix: String,
        name: String,
        wakeups: Wakeups,
        settings: ClientSettings,
    ) -> Self {
        let claims = AtomicU64::new(uuid::Uuid::new_v4().as_u64_pair().1);
        let words = format!("{}:{name}:", wakeups.how());
        let (gate_numbers, hasher, drivers) = Default::default();
        let (strange_messages, waits, gates) = Default::default();
        Self {
            servers,
            prefix,
            name,
            words,
            wakeups,
            settings,
            gate_numbers,
            claims,
            hasher,
            drivers,
            strange_messages,
            waits,
            gates,
        }
    }

    /// Whether one more caller may drive its calls itself. Each that is left alone in the middle
    /// may keep one of the connection's 50 places for commands to send.
    pub(crate) fn may_drive(&self) -> bool {
        let may = self.drivers.fetch_add(1, Ordering::Relaxed) < MOST_DRIVERS;
        if !may {
            self.drives_no_more();
        }
        may
    }

    pub(crate) fn drives_no_more(&self) {
        self.drivers.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn next_gate(&self) -> u64 {
        self.gate_numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// A number that no claim has had, in any process. Nobody can guess it from those before: who
    /// knows the word of a claim that waits can forge the message of its grant. A keyed hash costs
    /// a fraction of what the system takes for random bytes. After a fork both processes have the
    /// same count and the same key: what differs is the moment, to the nanosecond. (To ask for the
    /// process id takes longer than all the rest.)
    pub(crate) fn next_number(&self, created: Instant) -> u128 {
        let count = self.claims.fetch_add(1, Ordering::Relaxed);
        // In the order in which they are made, which lanes like best.
        u128::from(count) << 64 | u128::from(self.hasher.hash_one((count, created)))
    }

    /// The claims that wait in a queue, by number.
    pub(crate) fn waits(&self) -> MutexGuard<'_, Numbered<Arc<Claim>>> {
        self.waits.lock().expect("nothing panics while it is locked")
    }

    /// The claim of that word, if it waits.
    pub(crate) fn wait_of(&self, word: &str) -> Option<Arc<Claim>> {
        let number = word::number_of(word)?;
        self.waits().get(&number).filter(|claim| claim.word == word).cloned()
    }

    fn gates(&self) -> MutexGuard<'_, HashMap<String, Vec<Weak<Gate>>>> {
        self.gates.lock().expect("nothing panics while it is locked")
    }

    /// A semaphore is new.
    pub(crate) fn enter(&self, gate: &Arc<Gate>) {
        self.gates().entry(gate.name.clone()).or_default().push(Arc::downgrade(gate));
    }

    /// A semaphore of that name is gone.
    pub(crate) fn strike(&self, name: &str) {
        let mut gates = self.gates();
        if let Some(same) = gates.get_mut(name) {
            same.retain(|gate| gate.strong_count() > 0);
            if same.is_empty() {
                gates.remove(name);
            }
        }
    }

    /// The semaphores of that name.
    pub(crate) fn gates_of(&self, name: &str) -> Vec<Arc<Gate>> {
        self.gates().get(name).into_iter().flatten().filter_map(Weak::upgrade).collect()
    }
}

/// A handle to the shared part. The worker ends when the last one is gone.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) shared: Arc<Shared>,
    tasks: mpsc::UnboundedSender<Task>,
    /// Ends with the worker.
    worker_runs: watch::Receiver<()>,
    /// The one in which it was connected: that of a caller may end while calls are under way.
    runtime: Handle,
}

/// Why a task has not done what it was to do.
pub(crate) enum Undone {
    /// Its runtime does not run.
    Rests,
    Ended,
}

impl Client {
    pub(crate) fn new(
        shared: Arc<Shared>,
        tasks: mpsc::UnboundedSender<Task>,
        worker_runs: watch::Receiver<()>,
    ) -> Self {
        Self { shared, tasks, worker_runs, runtime: Handle::current() }
    }

    /// Spawns in the runtime in which it was connected, or in that of the caller once the worker
    /// has ended, maybe with its runtime. Where no runtime is left the future is dropped.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        match Handle::try_current() {
            Ok(current) if self.is_closed() => current.spawn(future),
            _ => self.runtime.spawn(future),
        };
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Waits for what is done at home, no longer than such a [`Watch`] does. `None` says that it
    /// was too long.
    pub(crate) async fn within<T>(
        &self,
        since: Instant,
        patience: Duration,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let (mut work, mut watch) = (pin!(work), Watch::new(since, patience));
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => watch.poll(&self.runtime, cx).map(|()| None),
        })
        .await
    }

    /// Waits until then at most, whatever runtime the caller is in.
    pub(crate) async fn until<T>(
        &self,
        deadline: Instant,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let (mut work, mut timer) = (pin!(work), Timer::new(deadline));
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => timer.poll(self.runtime(), cx).map(|_| None),
        })
        .await
    }

    /// Has a task do what takes no longer than that: others may depend on it, or the caller lack a
    /// runtime for it.
    pub(crate) async fn by_a_task<T: Send + 'static>(
        &self,
        patience: Duration,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Undone> {
        let (answer, done) = oneshot::channel();
        self.spawn(async move {
            // Whoever asked may have gone.
            let _ = answer.send(work.await);
        });
        match self.within(Instant::now(), patience, done).await {
            Some(done) => done.map_err(|_| Undone::Ended),
            None => Err(Undone::Rests),
        }
    }

    /// Never blocks. Answers whether there still is a worker: it ends with `shutdown`, or with its
    /// runtime.
    pub(crate) fn send(&self, task: Task) -> bool {
        self.tasks.send(task).is_ok()
    }

    /// Waits until the worker has done all that it had to do.
    pub(crate) async fn worker_has_ended(&self) {
        // Nothing is ever sent: an error says so.
        let _ = self.worker_runs.clone().changed().await;
    }

    /// Waits until the worker takes no more tasks.
    pub(crate) async fn closed(&self) {
        self.tasks.closed().await;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.tasks.is_closed()
    }
}
