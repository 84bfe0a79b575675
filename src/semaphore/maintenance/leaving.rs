//! Starts the last leases of permits that are left.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::Done;
use crate::semaphore::acquisition::Acquisition;
use crate::semaphore::core::Core;

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
    acquisitions.iter().for_each(|left| core.part_with(left));
    Done::Released
}
