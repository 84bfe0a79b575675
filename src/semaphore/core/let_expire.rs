//! Parting with permits: this process lets them expire, or passes them on to another process.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::{Core, Refresh, Task, Undelivered};
use crate::runtime::Deadline;
use crate::semaphore::acquisition::{ACQUIRE, Acquisition};

impl Core {
    /// This process neither renews nor releases it any more. It may be in use without us, for no
    /// longer than a lease from now on: so long a message that comes late must not have it
    /// released.
    pub(crate) fn part_with(self: &Arc<Self>, acquisition: &Arc<Acquisition>) {
        let until = Instant::now() + self.settings.lease;
        self.context.router.part_with(acquisition.number, until);
        self.hold_no_more(std::iter::once(&**acquisition));
        // An acquire of it may still reach the server, such as a heartbeat that is under way.
        if acquisition.take_doubt() || acquisition.in_flight.has(ACQUIRE) {
            self.give_back_later(acquisition, until);
        }
    }

    /// Starts its last lease in the background: by the maintenance, or by a task of its own where
    /// that has ended.
    pub(crate) fn let_expire(self: &Arc<Self>, acquisition: &Arc<Acquisition>) {
        if !self.enqueue(Task::LetExpire(acquisition.clone())) {
            let expiring = Undelivered::expiring(self, vec![acquisition.clone()]);
            let (core, patience) = (self.clone(), self.context.settings.call_timeout());
            self.context.spawn_tracked(async move {
                core.let_expire_all(expiring, Deadline::after(patience)).await;
            });
        }
    }

    /// Starts their last leases, and goes on until Redis confirms it.
    pub(crate) async fn let_expire_all(
        self: &Arc<Self>,
        mut undelivered: Undelivered,
        deadline: Deadline,
    ) {
        let ask = |acquisition| {
            self.insist(deadline, move || self.ask_along(self.last_lease(acquisition), deadline))
        };
        let expiring = undelivered.expiring.clone();
        let answers = join_all(expiring.iter().map(ask)).await;
        let mut failed = Vec::new();
        for (acquisition, answer) in expiring.iter().zip(answers) {
            match answer {
                Ok(answer) if !answer.reply => self.lose(acquisition),
                Ok(_) => {}
                Err(error) => failed.push(error),
            }
        }
        if undelivered.settle(&failed)
            && let Some(error) = failed.first()
        {
            tracing::warn!(
                semaphore = self.name,
                permits = failed.len(),
                after = ?deadline.elapsed(),
                %error,
                "permits that are to expire could not be refreshed for the last time; their leases expire earlier"
            );
        }
        expiring.iter().for_each(|expiring| self.part_with(expiring));
    }

    /// The whole of it, also where that is beyond `max_hold`.
    pub(crate) fn last_lease(&self, acquisition: &Arc<Acquisition>) -> Refresh {
        let (acquisition, duration) = (acquisition.clone(), self.settings.first_lease());
        Refresh { acquisition, duration, operation: "let_expire" }
    }
}
