//! Adopting a permit that another process has parted with.

use std::pin::pin;
use std::sync::Arc;

use tracing::Instrument;

use super::Semaphore;
use crate::error::Error;
use crate::metrics::Origin;
use crate::runtime::Deadline;
use crate::semaphore::acquire::{AGES_BY_REPLY, Pending};
use crate::semaphore::core::{Adopt, Core};
use crate::semaphore::lease::Grant;
use crate::semaphore::{DetachedPermit, Permit};

impl Semaphore {
    /// Makes a permit of a [detached](DetachedPermit) one that another process had, or this one. It
    /// never leaves the semaphore's count in between: nobody else gets it, and nobody is waited
    /// for.
    ///
    /// From now on it is this process that renews the permit and gives it back, under a new
    /// [id](Permit::id), with the lease and [`max_hold`](crate::SemaphoreBuilder::max_hold) of this
    /// semaphore, counted anew. The weight stays, and so does the
    /// [fencing token](DetachedPermit::fencing_token). The old id is worth nothing any more.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when the lease has ended, the permit was lost or given back before, or
    /// somebody else has adopted it: of two who adopt the same permit, the second gets this.
    /// [`Error::Invalid`] when it is a permit of a semaphore with another name; nothing was sent
    /// then. Otherwise as for [`acquire`](Self::acquire): [`Error::Unavailable`] when Redis gives
    /// no answer for longer than the outage tolerance, [`Error::NotAcknowledged`],
    /// [`Error::Rejected`], [`Error::Closed`], [`Error::Shutdown`]. After these the permit may have
    /// been adopted: then it is given back.
    ///
    /// # Cancel safety
    ///
    /// A call that is dropped has done nothing, or the permit that it adopted is given back in the
    /// background. Where nothing was done, the permit can be adopted until its lease ends.
    ///
    /// # Examples
    ///
    /// See [`DetachedPermit`].
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
        // Its deadline came before the end of its lease on the server: it stays lost all the same.
        if detached.expires_in().is_zero() {
            return Err(self.not_adopted(detached));
        }
        self.check(detached.weight())?;
        let patience = self.context.settings.tolerance();
        let acquisition = self.acquisition(detached.weight(), 0);
        let mut pending = Pending::new(self, &acquisition);
        let request = Adopt { acquisition: acquisition.clone(), from: detached.id().to_owned() };
        let answer = self.ask(request, Deadline::since(acquisition.created, patience)).await?;
        if !answer.reply {
            // What is lost stays so, whatever may still be on its way.
            pending.is_settled = true;
            return Err(self.not_adopted(detached));
        }
        self.hold(std::iter::once(&acquisition), answer.sent);
        let grant = Grant { token: detached.fencing_token(), since: answer.sent };
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
