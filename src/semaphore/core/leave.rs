//! Parting with permits: they are left, or passed on to another process.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Core, Refresh, Task};
use crate::error::Error;
use crate::semaphore::acquisition::{ACQUIRE, Acquisition};

impl Core {
    /// This process neither renews nor releases it any more. It may be in use without us, for no
    /// longer than a lease from now on: so long a message that comes late must not have it released.
    pub(crate) fn part_with(self: &Arc<Self>, acquisition: &Arc<Acquisition>) {
        let until = Instant::now() + self.settings.lease;
        self.context.router.part_with(acquisition.number, until);
        self.hold_no_more(std::iter::once(&**acquisition));
        // An acquire of it may still reach the server, such as a heartbeat that is under way.
        if acquisition.take_doubt() || acquisition.in_flight.has(ACQUIRE) {
            self.enqueue(Task::ReleaseAgain(acquisition.clone(), until));
        }
    }

    /// Starts its last lease in the background: by the maintenance, or by a task of its own where
    /// that has ended.
    pub(crate) fn leave(self: &Arc<Self>, acquisition: &Arc<Acquisition>) {
        if !self.enqueue(Task::Leave(acquisition.clone())) {
            let (core, acquisition) = (self.clone(), acquisition.clone());
            self.context.spawn_tracked(async move {
                let patience = core.context.settings.patience();
                let request = core.last_lease(&acquisition);
                if let Err(error) = core.ask(request, Instant::now(), patience).await {
                    core.warn_of_short_lease(1, patience, &error);
                }
            });
        }
    }

    /// The whole of it, also where that is beyond `max_hold`.
    pub(crate) fn last_lease(&self, acquisition: &Arc<Acquisition>) -> Refresh {
        let (acquisition, duration) = (acquisition.clone(), self.settings.first_lease());
        Refresh { acquisition, duration, operation: "leave" }
    }

    pub(crate) fn warn_of_short_lease(&self, permits: usize, after: Duration, error: &Error) {
        tracing::warn!(
            semaphore = self.name,
            permits,
            ?after,
            %error,
            "left permits could not be renewed for the last time; their leases end earlier"
        );
    }
}
