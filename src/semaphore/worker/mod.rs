//! The background worker: one task per [`Semaphores`](crate::Semaphores).
//!
//! It renews leases, gives back what was dropped, asks again for what waits, and calls `wake` when
//! a lease ends. Its calls run as jobs beside it, so a slow one holds nothing up.

mod ask;
mod release;
mod renew;
mod timers;

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::runtime::clock;
use crate::semaphore::claim::Claim;
use crate::semaphore::gate::Gate;
use crate::semaphore::hand_offs::HandOffs;
use crate::semaphore::requests::How;
use crate::semaphore::shared::{Client, Shared};
use crate::wakeup::{self, Listener};
use release::Releases;
use timers::{Due, Timers};

/// What the rest of the crate asks of the worker.
pub(crate) enum Task {
    /// A semaphore has its first permit to renew.
    Renew(Arc<Gate>),
    /// A claim must be given back, whatever the server has for it.
    Release(Arc<Claim>, How),
    /// A claim was given back, but an acquire of it may reach the server later.
    ReleaseAgain(Arc<Claim>),
    /// A semaphore has permits that nobody wants.
    ReleaseUnwanted(Arc<Gate>),
    /// Claims wait.
    Ask(AskWhen),
    WakeAt(Arc<Gate>, Instant),
    /// The semaphore of that number is gone.
    Gone(u64),
    /// Give back what is pending, end all waits, and end.
    Shutdown,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum AskWhen {
    /// Often enough that the server takes us for alive.
    InTime,
    /// The truth may have changed without our hearing of it.
    Now,
}

/// What a job has done.
enum Done {
    Renewed(Weak<Gate>, Instant),
    NothingToRenew,
    Asked { again: Option<Duration> },
    Woke(Arc<Gate>, Option<Duration>),
    Released,
}

struct Worker {
    shared: Arc<Shared>,
    tasks: mpsc::UnboundedReceiver<Task>,
    timers: Timers,
    jobs: JoinSet<Done>,
    /// Calls of `release` under way: the worker does not end before them.
    releasing: usize,
    ask: Ask,
    listener: tokio::task::JoinHandle<()>,
    /// Until it is dropped.
    _is_running: watch::Sender<()>,
}

/// Asking goes on one call at a time.
#[derive(Default)]
struct Ask {
    is_planned: bool,
    is_running: bool,
    is_wanted: bool,
}

/// Starts the worker and the listener in the current runtime.
pub(crate) fn start(shared: Arc<Shared>, listener: Listener) -> Client {
    let (sender, tasks) = mpsc::unbounded_channel();
    let (is_running, worker_runs) = watch::channel(());
    let hand_offs = HandOffs { shared: shared.clone(), tasks: sender.downgrade() };
    let listener = wakeup::listen(Arc::new(hand_offs), listener);
    let worker = Worker {
        shared: shared.clone(),
        tasks,
        timers: Timers::default(),
        jobs: JoinSet::new(),
        releasing: 0,
        ask: Ask::default(),
        listener: tokio::spawn(listener),
        _is_running: is_running,
    };
    tokio::spawn(worker.run());
    Client::new(shared, sender, worker_runs)
}

impl Worker {
    async fn run(mut self) {
        self.serve().await;
        self.listener.abort();
        let deadline = tokio::time::sleep(self.shared.settings.patience());
        tokio::pin!(deadline);
        while self.releasing > 0 {
            tokio::select! {
                Some(done) = self.jobs.join_next() => self.finished(done),
                () = &mut deadline => {
                    tracing::warn!("shut down with permits that Redis did not take back; their leases end by themselves");
                    break;
                }
            }
        }
    }

    /// Works until nobody needs it, or it is told to end.
    async fn serve(&mut self) {
        let mut tasks = Vec::new();
        loop {
            tokio::select! {
                count = self.tasks.recv_many(&mut tasks, 10_000) => {
                    if count == 0 || self.take(&mut tasks) {
                        return;
                    }
                }
                due = self.timers.next() => {
                    clock::rest_if_paused().await;
                    self.due(due);
                }
                Some(done) = self.jobs.join_next() => self.finished(done),
            }
        }
    }

    /// Answers whether it is to end.
    fn take(&mut self, tasks: &mut Vec<Task>) -> bool {
        let mut releases = Releases::default();
        let mut ends = false;
        for task in tasks.drain(..) {
            match task {
                Task::Renew(gate) => {
                    self.timers.renew_at(Instant::now() + gate.renewal_interval(), &gate);
                }
                Task::Release(claim, how) => releases.add(claim, how),
                Task::ReleaseUnwanted(gate) => {
                    self.releasing += 1;
                    self.jobs.spawn(release::release_unwanted(gate));
                }
                Task::ReleaseAgain(claim) => {
                    let pause = self.shared.settings.longest_trip();
                    self.timers.release_in(pause, claim);
                }
                Task::Ask(AskWhen::Now) => self.ask_now(),
                Task::Ask(AskWhen::InTime) => self.plan_ask(self.shared.settings.ask_interval()),
                Task::WakeAt(gate, at) => self.timers.wake_at(at, &gate),
                Task::Gone(number) => self.timers.forget(number),
                Task::Shutdown => ends = true,
            }
        }
        if ends {
            self.close(&mut releases);
        }
        self.release(releases);
        ends
    }

    fn release(&mut self, releases: Releases) {
        for job in releases.into_jobs() {
            self.releasing += 1;
            self.jobs.spawn(job);
        }
    }

    /// Takes no more tasks, ends all waits and gives back what they have.
    fn close(&mut self, releases: &mut Releases) {
        self.tasks.close();
        while let Ok(task) = self.tasks.try_recv() {
            if let Task::Release(claim, how) = task {
                releases.add(claim, how);
            }
        }
        let waits = std::mem::take(&mut *self.shared.waits());
        for claim in waits.into_values() {
            claim.end();
            claim.settle(Err(crate::Error::Shutdown));
            releases.add(claim, How::Return);
        }
    }

    fn due(&mut self, due: Due) {
        match due {
            Due::Ask => {
                self.ask.is_planned = false;
                self.ask_now();
            }
            Due::Release(claim) => {
                let mut releases = Releases::default();
                releases.add(claim, How::Return);
                self.release(releases);
            }
            Due::Renew(gate) => _ = self.jobs.spawn(renew::renew(gate)),
            Due::Wake(gate) => {
                gate.wakes();
                self.jobs.spawn(wake(gate));
            }
            Due::Nothing => {}
        }
    }

    fn finished(&mut self, done: Result<Done, tokio::task::JoinError>) {
        match done {
            Ok(Done::Renewed(gate, next)) => {
                if let Some(gate) = gate.upgrade() {
                    self.timers.renew_at(next, &gate);
                }
            }
            Ok(Done::Asked { again }) => {
                self.ask.is_running = false;
                if std::mem::take(&mut self.ask.is_wanted) {
                    self.ask_now();
                } else if let Some(pause) = again {
                    self.plan_ask(pause);
                }
            }
            Ok(Done::Woke(gate, Some(wake_in))) if gate.has_waits() || wake_in.is_zero() => {
                gate.wake_at(Instant::now() + wake_in);
            }
            Ok(Done::Woke(..) | Done::NothingToRenew) => {}
            Ok(Done::Released) => self.releasing -= 1,
            Err(error) => {
                // A job is cancelled only when the runtime ends, and this task with it.
                if let Ok(panic) = error.try_into_panic() {
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }

    fn plan_ask(&mut self, pause: Duration) {
        if !self.ask.is_planned {
            self.ask.is_planned = true;
            self.timers.ask_in(pause);
        }
    }

    fn ask_now(&mut self) {
        if self.ask.is_running {
            self.ask.is_wanted = true;
        } else {
            self.ask.is_running = true;
            self.jobs.spawn(ask::ask(self.shared.clone()));
        }
    }
}

async fn wake(gate: Arc<Gate>) -> Done {
    let wake_in = match gate.wake().await {
        Ok((wake_in, _)) => wake_in,
        Err(error) => {
            // Asking again, which goes on meanwhile, serves the queue as well.
            tracing::debug!(%error, "wake failed");
            None
        }
    };
    Done::Woke(gate, wake_in)
}
