//! The maintenance of a semaphore: a task that runs while permits are held, requests wait, or work
//! is planned.
//!
//! - `renewal` refreshes permits at intervals of a third of the lease, with its own calls.
//! - `heartbeat` sends waiting requests again: at intervals of a third of the heartbeat timeout,
//!   after each new subscription, and after a message that a request left the queue without a
//!   permit.
//! - `wake` calls the script `wake` when the next lease expires. The server chooses the processes
//!   that make this call.
//!
//! Each call runs as a separate job, so a slow call does not delay other calls. Running jobs keep
//! the semaphore alive. Planned work does not.

mod heartbeat;
mod renewal;

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::protocol::MAX_BATCH;
use crate::semaphore::core::{Core, Task, Tasks};

enum Done {
    Renewed { next: Option<Instant> },
    Heartbeat { next: Option<Duration> },
    Woke,
}

struct Maintenance {
    core: Weak<Core>,
    tasks: Tasks,
    jobs: JoinSet<Done>,
    renewal: Option<Instant>,
    /// Only one refresh runs at a time.
    is_renewing: bool,
    wake: Option<Instant>,
    heartbeat: Heartbeat,
    /// Whether the work is done or the maintenance was shut down. If `is_done` is false in `drop`,
    /// the runtime is ending, or the maintenance has panicked.
    is_done: bool,
}

/// The plan for heartbeats. Only one heartbeat runs at a time.
#[derive(Default)]
struct Heartbeat {
    next: Option<Instant>,
    is_running: bool,
    /// Whether a second heartbeat must follow the running heartbeat immediately.
    is_wanted: bool,
}

/// Starts the maintenance, which ends when no work is left, or in a shutdown.
pub(crate) fn start(core: &Arc<Core>, tasks: Tasks) {
    let maintenance = Maintenance {
        core: Arc::downgrade(core),
        tasks,
        jobs: JoinSet::new(),
        renewal: None,
        is_renewing: false,
        wake: None,
        heartbeat: Heartbeat::default(),
        is_done: false,
    };
    core.context.spawn_tracked(maintenance.run(core.context.end()));
}

impl Maintenance {
    async fn run(mut self, end: CancellationToken) {
        end.run_until_cancelled(self.serve()).await;
        self.is_done = true;
    }

    async fn serve(&mut self) {
        let mut tasks = Vec::new();
        while !self.may_rest() {
            let next = self.next();
            let due = async {
                match next {
                    Some(next) => sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                count = self.tasks.recv_many(&mut tasks, MAX_BATCH) => match count {
                    0 => return,
                    _ => self.take(tasks.drain(..)),
                },
                () = due => self.due(),
                Some(done) = self.jobs.join_next() => self.finished(done),
            }
        }
    }

    /// Returns whether no work is left. The maintenance then ends, and the next task starts it
    /// again.
    fn may_rest(&self) -> bool {
        let is_idle = self.jobs.is_empty() && self.next().is_none();
        is_idle && self.core.upgrade().is_none_or(|core| core.rest(&self.tasks))
    }

    /// Returns the time at which the next work is due.
    fn next(&self) -> Option<Instant> {
        let renewal = self.renewal.filter(|_| !self.is_renewing);
        [renewal, self.wake, self.heartbeat.next].into_iter().flatten().min()
    }

    fn take(&mut self, tasks: impl Iterator<Item = (Arc<Core>, Task)>) {
        for (core, task) in tasks {
            let settings = &core.context.settings;
            match task {
                Task::Renew(at) => self.plan_renewal(at),
                Task::Heartbeat => self.plan_heartbeat(settings.heartbeat_interval()),
                Task::HeartbeatNow => self.beat(&core),
                Task::WakeAt(at) => self.wake = Some(at),
            }
        }
    }

    fn due(&mut self) {
        let now = Instant::now();
        let Some(core) = self.core.upgrade() else {
            return;
        };
        let is_due = |at: &mut Option<Instant>| at.take_if(|at| *at <= now).is_some();
        if !self.is_renewing && is_due(&mut self.renewal) {
            self.is_renewing = true;
            self.jobs.spawn(renewal::renew(core.clone()));
        }
        if is_due(&mut self.wake) {
            let (is_due, next) = core.take_wake(now);
            self.wake = next;
            if is_due {
                self.jobs.spawn(wake(core.clone()));
            }
        }
        if is_due(&mut self.heartbeat.next) {
            self.beat(&core);
        }
    }

    fn finished(&mut self, done: Result<Done, JoinError>) {
        match done {
            Ok(Done::Renewed { next }) => {
                self.is_renewing = false;
                _ = next.map(|at| self.plan_renewal(at));
            }
            Ok(Done::Heartbeat { next }) => {
                self.heartbeat.is_running = false;
                let core = self.core.upgrade();
                match core.filter(|_| std::mem::take(&mut self.heartbeat.is_wanted)) {
                    Some(core) => self.beat(&core),
                    None => _ = next.map(|pause| self.plan_heartbeat(pause)),
                }
            }
            Ok(Done::Woke) => {}
            Err(error) => {
                // A job is canceled only when the runtime ends. In this case, this task ends, too.
                if let Ok(panic) = error.try_into_panic() {
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }

    /// Plans a refresh at this time, unless an earlier refresh is planned.
    fn plan_renewal(&mut self, at: Instant) {
        self.renewal = Some(self.renewal.map_or(at, |next| next.min(at)));
    }

    /// Plans a heartbeat after `pause`, unless an earlier heartbeat is planned.
    fn plan_heartbeat(&mut self, pause: Duration) {
        let at = Instant::now() + pause;
        self.heartbeat.next = Some(self.heartbeat.next.map_or(at, |next| next.min(at)));
    }

    fn beat(&mut self, core: &Arc<Core>) {
        if self.heartbeat.is_running {
            self.heartbeat.is_wanted = true;
        } else {
            self.heartbeat.is_running = true;
            self.jobs.spawn(heartbeat::beat(core.clone()));
        }
    }
}

impl Drop for Maintenance {
    /// Ends all semaphores if the runtime ends without a shutdown. If this maintenance panics, ends
    /// only its own semaphore.
    fn drop(&mut self) {
        let Some(core) = self.core.upgrade().filter(|_| !self.is_done) else { return };
        if std::thread::panicking() {
            core.closing.shut_down();
        } else {
            core.context.end_with_io_runtime();
        }
    }
}

async fn wake(core: Arc<Core>) -> Done {
    match core.wake().await {
        Ok((next, _)) => {
            if next.is_some_and(|pause| pause.is_zero()) || core.ledger.has_waits() {
                core.plan_wake(next);
            }
        }
        // Heartbeats continue, and also make the server grant free permits.
        Err(error) => tracing::debug!(%error, "wake failed"),
    }
    Done::Woke
}
