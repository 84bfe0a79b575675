//! Adopting a permit that another process has detached.

use std::pin::pin;
use std::sync::Arc;

use tokio::time::Instant;
use tracing::Instrument;

use super::Semaphore;
use crate::error::Error;
use crate::metrics::Origin;
use crate::protocol::id;
use crate::runtime::Deadline;
use crate::semaphore::acquire::{AGES_BY_REPLY, Pending};
use crate::semaphore::core::{Adopt, Core, Wanted};
use crate::semaphore::lease::Grant;
use crate::semaphore::ledger::Acquisition;
use crate::semaphore::{DetachedPermit, Permit};

impl Semaphore {
    /// Adopts a [detached](DetachedPermit) permit of another process, or of this process. The
    /// permit counts against the limit without interruption, and the call does not wait in the
    /// queue.
    ///
    /// From now on, this process refreshes and releases the permit, under a new [ID](Permit::id).
    /// The lease and [`max_hold`](crate::SemaphoreBuilder::max_hold) of this semaphore apply, and
    /// start again. The weight and the [fencing token](DetachedPermit::fencing_token) do not
    /// change. The old ID becomes invalid.
    ///
    /// # Errors
    ///
    /// - [`Error::Lost`] if the lease has expired, or the permit was lost or released before. If
    ///   two processes adopt the same permit, the second process gets this error.
    /// - [`Error::Invalid`] if the permit belongs to a semaphore with another name. Nothing was
    ///   sent.
    /// - [`Error::Unavailable`] if Redis is unavailable for longer than the outage tolerance.
    /// - [`Error::NotAcknowledged`] if too few replicas acknowledge the permit in time.
    /// - [`Error::Rejected`] if Redis returns a permanent error.
    /// - [`Error::Closed`] if the semaphore is closed.
    /// - [`Error::Shutdown`] in the same cases as for [`acquire`](Self::acquire).
    ///
    /// After any error except `Lost` and `Invalid`, the permit may have been adopted. An adopted
    /// permit is then released in the background.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the permit may or may not have been adopted. An adopted permit is
    /// released in the background. A permit that was not adopted can still be adopted until its
    /// lease expires.
    pub async fn adopt(&self, detached: DetachedPermit) -> Result<Permit, Error> {
        let core = &self.core;
        let span = tracing::debug_span!("adopt", semaphore = core.name, id = detached.id());
        core.unless_ended(pin!(core.adopt_detached(&detached))).instrument(span).await
    }
}

impl Core {
    async fn adopt_detached(self: &Arc<Self>, detached: &DetachedPermit) -> Result<Permit, Error> {
        if detached.name() != self.name {
            let reason = format!("is of semaphore {:?}, not of {:?}", detached.name(), self.name);
            return Err(Error::invalid("permit", reason));
        }
        // The lease may not have expired on the server yet, but a lost permit stays lost.
        if detached.expires_in().is_zero() {
            return Err(self.not_adopted(detached));
        }
        self.check(detached.weight())?;
        let patience = self.context.settings.tolerance();
        let group = id::group_of(detached.id()).to_owned();
        let wanted = Wanted { weight: detached.weight(), head_start: 0, group };
        let acquisition = self.acquisition(&wanted);
        let pending = Pending::new(self, &acquisition);
        let request = Adopt { acquisition: acquisition.clone(), from: detached.id().to_owned() };
        let response = self.ask(request, Deadline::since(acquisition.created, patience)).await?;
        if !response.reply {
            // A lost permit stays lost, so a call that is still in flight cannot adopt it.
            pending.settle();
            return Err(self.not_adopted(detached));
        }
        // The detaching process may have sent its acquire more than once. A copy that arrives from
        // now on takes a second permit, under the old ID.
        let old = Acquisition::unwanted(detached.id().to_owned());
        self.give_back_later(&old, Instant::now() + self.context.settings.longest_trip());
        let grant = Grant { token: detached.fencing_token(), since: response.sent };
        acquisition.resolve(Ok(grant));
        self.hold(std::iter::once(&acquisition), response.sent);
        match self.confirm(&acquisition, grant, AGES_BY_REPLY, "adopt", patience).await? {
            Some(grant) => pending.into_permit(grant, Origin::Adopted),
            None => Err(self.not_adopted(detached)),
        }
    }

    fn not_adopted(&self, detached: &DetachedPermit) -> Error {
        let (semaphore, id) = (self.name.clone(), detached.id().to_owned());
        Error::Lost { semaphore, operation: "adopt", id }
    }
}
