//! The background jobs of a semaphore, which run at planned times.
//!
//! Each job has a task while a time is planned for the job, or while the job runs. So a slow job
//! does not delay another job. A running job keeps the semaphore alive, but a planned job does not.

use std::sync::{Arc, Weak};

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::{Core, Job, auto_refresh, heartbeat};

/// The plan of a job. The receiver is notified if the job is planned earlier than before.
#[derive(Default)]
pub(super) struct Alarm(watch::Sender<Plan>);

#[derive(Default)]
struct Plan {
    at: Option<Instant>,
    /// Whether the job has a task.
    has_task: bool,
}

impl Alarm {
    /// Removes the planned time. Returns false if no time was planned: the task must then end.
    fn take(&self) -> bool {
        let mut was_planned = false;
        self.0.send_if_modified(|plan| {
            was_planned = plan.at.take().is_some();
            plan.has_task = was_planned;
            false
        });
        was_planned
    }
}

impl Core {
    /// Plans the job for this time, unless an earlier time is planned.
    pub(super) fn plan(self: &Arc<Self>, job: Job, at: Instant) {
        self.change_plan(job, |planned| Some(planned.map_or(at, |planned| planned.min(at))));
    }

    /// Replaces the planned time of the job. Starts the job's task unless it runs.
    pub(super) fn change_plan(
        self: &Arc<Self>,
        job: Job,
        change: impl FnOnce(Option<Instant>) -> Option<Instant>,
    ) {
        let alarm = &self.alarms[job as usize];
        let mut needs_task = false;
        alarm.0.send_if_modified(|plan| {
            let before = plan.at;
            plan.at = change(before);
            let is_earlier = plan.at.is_some_and(|at| before.is_none_or(|before| at < before));
            needs_task = is_earlier && !plan.has_task;
            plan.has_task |= needs_task;
            is_earlier
        });
        if needs_task {
            let task = JobTask { core: Arc::downgrade(self), job };
            let (plan, end) = (alarm.0.subscribe(), self.context.end());
            self.context.spawn_tracked(async move {
                end.run_until_cancelled(task.serve(plan)).await;
            });
        }
    }
}

struct JobTask {
    core: Weak<Core>,
    job: Job,
}

impl JobTask {
    async fn serve(&self, mut plan: watch::Receiver<Plan>) {
        loop {
            let planned = plan.borrow_and_update().at;
            if let Some(at) = planned.filter(|at| *at > Instant::now()) {
                tokio::select! {
                    changed = plan.changed() => match changed {
                        Ok(()) => {}
                        // The semaphore was dropped.
                        Err(_) => return,
                    },
                    () = sleep_until(at) => {}
                }
                continue;
            }
            let core = self.core.upgrade();
            let Some(core) = core.filter(|core| core.alarms[self.job as usize].take()) else {
                return;
            };
            let next = match self.job {
                Job::Refresh => Box::pin(auto_refresh::refresh_permits(&core)).await,
                Job::Beat => Box::pin(heartbeat::beat(&core)).await,
                Job::Wake => Box::pin(wake(&core)).await,
            };
            _ = next.map(|at| core.plan(self.job, at));
        }
    }
}

impl Drop for JobTask {
    /// Ends the semaphore if the job panics.
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(core) = self.core.upgrade()
        {
            core.closing.shut_down();
        }
    }
}

/// Calls the script `wake`, because a lease may have expired. The server chooses the processes that
/// make this call, and the time of the next call.
async fn wake(core: &Arc<Core>) -> Option<Instant> {
    match core.wake().await {
        Ok((next, _)) => {
            if next.is_some_and(|pause| pause.is_zero()) || core.ledger.has_waits() {
                core.plan_wake(next);
            }
        }
        // Heartbeats continue, and also make the server grant free permits.
        Err(error) => tracing::debug!(%error, "wake failed"),
    }
    None
}
