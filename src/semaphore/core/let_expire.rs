//! Letting go of permits that stay taken: this process lets them expire, or detaches them.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::{Core, Refresh, Task, Undelivered};
use crate::runtime::Deadline;
use crate::semaphore::ledger::{ACQUIRE, Acquisition};

impl Core {
    /// From now on, this process neither refreshes nor releases the permit. The permit may stay
    /// taken for up to a lease. During this time, a late grant message must not release the permit.
    pub(crate) fn part_with(self: &Arc<Self>, acquisition: &Arc<Acquisition>) {
        let until = Instant::now() + self.settings.lease;
        self.context.router.part_with(acquisition.number, until);
        self.ledger.remove(std::iter::once(&**acquisition));
        // An acquire of the ID, such as a heartbeat in flight, may still reach the server.
        if acquisition.calls.take_doubt() || acquisition.calls.has(ACQUIRE) {
            self.give_back_later(acquisition, until);
        }
    }

    /// Starts the last lease in the background: in the maintenance, or in a task if the maintenance
    /// has ended.
    pub(crate) fn let_expire(self: &Arc<Self>, acquisition: &Arc<Acquisition>) {
        if !self.enqueue(Task::LetExpire(acquisition.clone())) {
            let expiring = Undelivered::expiring(self, vec![acquisition.clone()]);
            let (core, patience) = (self.clone(), self.context.settings.call_timeout());
            self.context.spawn_tracked(async move {
                core.let_expire_all(expiring, Deadline::after(patience)).await;
            });
        }
    }

    /// Starts the last leases. The calls are retried until Redis confirms the leases, or until the
    /// deadline passes.
    pub(crate) async fn let_expire_all(
        self: &Arc<Self>,
        mut undelivered: Undelivered,
        deadline: Deadline,
    ) {
        let ask = |acquisition| {
            self.insist(deadline, move || self.ask(self.last_lease(acquisition), deadline))
        };
        let expiring = undelivered.expiring.clone();
        let responses = join_all(expiring.iter().map(ask)).await;
        let mut failed = Vec::new();
        for (acquisition, response) in expiring.iter().zip(responses) {
            match response {
                Ok(response) if !response.reply => self.lose(acquisition),
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
                "the last refresh of permits left to expire failed; they expire earlier"
            );
        }
        expiring.iter().for_each(|expiring| self.part_with(expiring));
    }

    /// Creates the request for the last lease. The lease has its full duration, even beyond
    /// `max_hold`.
    pub(crate) fn last_lease(&self, acquisition: &Arc<Acquisition>) -> Refresh {
        let (acquisition, duration) = (acquisition.clone(), self.settings.first_lease());
        Refresh { acquisition, duration, operation: "let_expire" }
    }
}
