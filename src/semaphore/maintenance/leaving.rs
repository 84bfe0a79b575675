//! Permits that this process has parted with: they are left, or passed on to another process.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::Done;
use crate::semaphore::acquisition::Acquisition;
use crate::semaphore::core::Core;

/// What may be in use without us, and until when, in this order. Until then its word is known here,
/// or a message that comes late would have it released.
#[derive(Default)]
pub(super) struct Parted(VecDeque<(Instant, Arc<Core>, Arc<Acquisition>)>);

impl Parted {
    /// A lease from now on is no shorter than what is left of any.
    pub(super) fn add(&mut self, core: &Arc<Core>, acquisition: Arc<Acquisition>) {
        self.0.push_back((Instant::now() + core.settings.lease, core.clone(), acquisition));
    }

    /// When the next one ends.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.front().map(|(at, ..)| *at)
    }

    /// Those that have ended. An acquire of one may still reach the server: these are answered.
    pub(super) fn end(&mut self, now: Instant) -> Vec<(Arc<Core>, Arc<Acquisition>)> {
        let ended = self.0.partition_point(|(at, ..)| *at <= now);
        let mut in_doubt = Vec::new();
        for (_, core, acquisition) in self.0.drain(..ended) {
            core.hold_no_more(std::iter::once(&*acquisition));
            if acquisition.is_in_doubt() {
                in_doubt.push((core, acquisition));
            }
        }
        in_doubt
    }
}

/// What is to be left.
#[derive(Default)]
pub(super) struct Leaving {
    core: Option<Arc<Core>>,
    acquisitions: Vec<Arc<Acquisition>>,
}

impl Leaving {
    pub(super) fn add(&mut self, core: &Arc<Core>, acquisition: Arc<Acquisition>) {
        self.core.get_or_insert_with(|| core.clone());
        self.acquisitions.push(acquisition);
    }

    pub(super) fn into_job(self) -> Option<impl Future<Output = Done> + Send> {
        Some(leave(self.core?, self.acquisitions))
    }
}

/// Starts their leases anew, for the last time. It goes on until Redis confirms it, or the leases
/// have ended anyway.
async fn leave(core: Arc<Core>, acquisitions: Vec<Arc<Acquisition>>) -> Done {
    let until = core.settings.lease.max(core.context.settings.patience());
    let started = Instant::now();
    let ask = |acquisition| core.ask_along(core.last_lease(acquisition), until);
    let answers = join_all(acquisitions.iter().map(ask)).await;
    let mut failed = Vec::new();
    for (acquisition, answer) in acquisitions.iter().zip(answers) {
        match answer {
            Ok(answer) if !answer.reply => core.lose(acquisition),
            Ok(_) => {}
            Err(error) => failed.push(error),
        }
    }
    if let Some(error) = failed.first() {
        core.warn_of_short_lease(failed.len(), started.elapsed(), error);
    }
    Done::Left { core, acquisitions }
}
