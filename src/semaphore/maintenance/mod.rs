//! The maintenance of a semaphore: one task of this process for each.
//!
//! - `renewal`: every third of the lease, while there are permits. It has calls of its own.
//! - `heartbeat`: asks again for what waits, every third of the liveness time, after each new
//!   subscription, and when a message says that one left the queue without a permit.
//! - `wake`: when the next lease ends, for those near the head of the queue.
//! - `reclaim`: releases what was dropped, until the server confirms that or the leases have ended.
//! - `leaving`: starts the last lease of what was left.
//!
//! Calls run as jobs beside the task, so a slow one holds nothing up. What is to be released or left
//! keeps the semaphore, and so does a job until it is done; what is only planned does not.

mod heartbeat;
mod leaving;
mod reclaim;
mod renewal;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::batching::MAX_BATCH;
use crate::semaphore::acquisition::Acquisition;
use crate::semaphore::core::{Core, ReleaseMode, Task, Tasks};
use reclaim::{Releases, Unwanted};

/// What a job has done.
enum Done {
    Renewed { next: Option<Instant> },
    Heartbeat { next: Option<Duration> },
    Woke,
    Released,
    ReleasedUnwanted,
}

struct Maintenance {
    core: Weak<Core>,
    tasks: Tasks,
    jobs: JoinSet<Done>,
    /// Jobs under way that give back or leave: it does not end before them.
    releasing: usize,
    renewal: Option<Instant>,
    /// One after the other.
    is_renewing: bool,
    wake: Option<Instant>,
    heartbeat: Heartbeat,
    /// What is to be released again, and when: in this order.
    again: VecDeque<(Instant, Arc<Core>, Arc<Acquisition>)>,
    unwanted: Unwanted,
}

/// One after the other.
#[derive(Default)]
struct Heartbeat {
    next: Option<Instant>,
    is_running: bool,
    /// Another one at once.
    is_wanted: bool,
}

/// Until nobody has the semaphore any more, or it is shut down.
pub(crate) fn start(core: &Arc<Core>, tasks: Tasks) {
    let context = &core.context;
    if context.is_shut_down() {
        core.closing.shut_down();
        return;
    }
    let maintenance = Maintenance {
        core: Arc::downgrade(core),
        tasks,
        jobs: JoinSet::new(),
        releasing: 0,
        renewal: None,
        is_renewing: false,
        wake: None,
        heartbeat: Heartbeat::default(),
        again: VecDeque::new(),
        unwanted: Unwanted::default(),
    };
    context.spawn_tracked(maintenance.run(context.end()));
}

impl Maintenance {
    async fn run(mut self, end: CancellationToken) {
        let is_over = end.run_until_cancelled(self.serve()).await.is_some();
        // What is begun in a runtime that ends would not be done: whoever waits gives back by itself.
        if is_over || self.core.upgrade().is_some_and(|core| !core.context.was_told_to_end()) {
            return;
        }
        self.end().await;
        while self.releasing > 0
            && let Some(done) = self.jobs.join_next().await
        {
            self.finished(done);
        }
    }

    /// Works until nobody has the semaphore any more.
    async fn serve(&mut self) {
        let mut tasks = Vec::new();
        loop {
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
                () = due => {
                    if let Some(core) = self.core.upgrade() {
                        core.context.servers.rest_if_paused().await;
                    }
                    self.due();
                }
                Some(done) = self.jobs.join_next() => self.finished(done),
            }
        }
    }

    /// When there is something to do.
    fn next(&self) -> Option<Instant> {
        let again = self.again.front().map(|(at, ..)| *at);
        let renewal = self.renewal.filter(|_| !self.is_renewing);
        [renewal, self.wake, self.heartbeat.next, again].into_iter().flatten().min()
    }

    fn take(&mut self, tasks: impl Iterator<Item = (Arc<Core>, Task)>) {
        let (mut releases, mut left, mut of) = (Releases::new(), Vec::new(), None);
        for (core, task) in tasks {
            let settings = &core.context.settings;
            match task {
                Task::Renew(at) => self.plan_renewal(at),
                Task::Release(acquisition, mode) => releases.push((acquisition, mode)),
                Task::ReleaseAgain(acquisition, at) => {
                    let before = self.again.partition_point(|(other, ..)| *other <= at);
                    self.again.insert(before, (at, core.clone(), acquisition));
                }
                Task::Leave(acquisition) => left.push(acquisition),
                Task::ReleaseUnwanted(words) => {
                    self.unwanted.add(words);
                    self.release_unwanted(&core);
                }
                Task::Heartbeat => self.plan_heartbeat(settings.heartbeat_interval()),
                Task::HeartbeatNow => self.beat(&core),
                Task::WakeAt(at) => self.wake = Some(at),
            }
            of = Some(core);
        }
        let Some(core) = of else { return };
        self.release(&core, releases);
        if !left.is_empty() {
            self.releasing += 1;
            self.jobs.spawn(leaving::leave(core, left));
        }
    }

    fn due(&mut self) {
        let now = Instant::now();
        let due = self.again.partition_point(|(at, ..)| *at <= now);
        if let Some(core) = self.again.front().map(|(_, core, _)| core.clone()) {
            let due = self.again.drain(..due);
            let releases = due.map(|(.., acquisition)| (acquisition, ReleaseMode::Return));
            let releases = releases.collect();
            self.release(&core, releases);
        }
        let Some(core) = self.core.upgrade() else {
            return;
        };
        let is_due = |at: &mut Option<Instant>| at.take_if(|at| *at <= now).is_some();
        if !self.is_renewing && is_due(&mut self.renewal) {
            self.is_renewing = true;
            self.jobs.spawn(renewal::renew(core.clone()));
        }
        if is_due(&mut self.wake) {
            core.clear_wake();
            self.jobs.spawn(wake(core.clone()));
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
            Ok(Done::Released) => self.releasing -= 1,
            Ok(Done::ReleasedUnwanted) => {
                self.releasing -= 1;
                self.unwanted.note_released();
                if let Some(core) = self.core.upgrade() {
                    self.release_unwanted(&core);
                }
            }
            Err(error) => {
                // A job is cancelled only when the runtime ends, and this task with it.
                if let Ok(panic) = error.try_into_panic() {
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }

    /// Unless one comes sooner.
    fn plan_renewal(&mut self, at: Instant) {
        self.renewal = Some(self.renewal.map_or(at, |next| next.min(at)));
    }

    /// Unless one comes sooner.
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

    fn release(&mut self, core: &Arc<Core>, releases: Releases) {
        if !releases.is_empty() {
            self.releasing += 1;
            self.jobs.spawn(reclaim::release(core.clone(), releases));
        }
    }

    fn release_unwanted(&mut self, core: &Arc<Core>) {
        if let Some(words) = self.unwanted.next() {
            self.releasing += 1;
            self.jobs.spawn(reclaim::release_unwanted(core.clone(), words));
        }
    }

    /// A shutdown: takes no more tasks, ends all waits and gives back what they have.
    async fn end(&mut self) {
        let core = self.core.upgrade();
        if let Some(core) = &core {
            core.closing.shut_down();
        }
        self.tasks.close();
        let mut last = Vec::new();
        // Until there is none: a task that is just being sent comes after a moment.
        while let Some(task) = self.tasks.recv().await {
            last.push(task);
        }
        self.take(last.into_iter());
        let Some(core) = core else {
            return;
        };
        core.take_over_calls();
        let waits = std::mem::take(&mut *core.waits());
        let ended = waits.into_values().inspect(|acquisition| acquisition.end());
        let releases = ended.map(|acquisition| (acquisition, ReleaseMode::Return)).collect();
        self.release(&core, releases);
    }
}

impl Drop for Maintenance {
    /// The runtime may end without a shutdown. Those whose waits end now are not to leave anything
    /// to it. Where this one panics the others go on.
    fn drop(&mut self) {
        self.tasks.close();
        if let Some(core) = self.core.upgrade() {
            if !std::thread::panicking() {
                core.context.end_with_home();
            }
            core.closing.shut_down();
        }
    }
}

async fn wake(core: Arc<Core>) -> Done {
    match core.wake().await {
        Ok((next, _)) => match core.first_position() {
            Some(position) => core.plan_wake(next, position),
            None if next.is_some_and(|pause| pause.is_zero()) => core.plan_wake(next, 1),
            None => {}
        },
        // Heartbeats, which go on meanwhile, serve the queue as well.
        Err(error) => tracing::debug!(%error, "wake failed"),
    }
    Done::Woke
}
