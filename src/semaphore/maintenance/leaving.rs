//! Starts the last leases of permits that are left.

use std::sync::Arc;

use super::Done;
use crate::runtime::Deadline;
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

/// It goes on until the leases have ended anyway.
async fn leave(core: Arc<Core>, acquisitions: Vec<Arc<Acquisition>>) -> Done {
    core.leave_all(&acquisitions, Deadline::after(core.until_leases_end())).await;
    Done::Released
}
