//! Taking away what somebody else holds or waits for.

use std::time::Duration;

use super::Semaphore;
use crate::error::Error;
use crate::protocol::id;

/// What [`Semaphore::revoke`] took away.
///
/// # Examples
///
/// See [`Semaphore::revoke`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Revoked {
    /// A permit, whose holder does not know yet.
    #[non_exhaustive]
    Permit {
        /// As its request had it. The longest time between two of its renewals is a third of this;
        /// without automatic renewal its holder may work on for all of it.
        lease: Duration,
    },
    /// A request that waited. A process that lives asks again at its next heartbeat.
    Request,
    /// Nothing: it was released before, or its lease had ended. Also where a call had no answer and
    /// was made again: then the first one may have taken it.
    Nothing,
}

impl Semaphore {
    /// Takes a permit away from whoever holds it, or a request out of the queue, by the `id` that
    /// [`inspect`](Self::inspect) tells. For operators: of a process that hangs, or that nobody can
    /// reach. What is free then goes to the queue at once.
    ///
    /// **How long both may work.** The holder is not asked. It hears at its next renewal, after a
    /// third of its lease at most, that the permit is lost. Until then it and whoever was let in
    /// work at the same time. A holder that cannot reach Redis, or does not renew, works on until
    /// its own deadline: a whole lease at most. Where that must not be, end its process first: its
    /// permit comes back when the lease ends.
    ///
    /// A request is taken from a process that is gone, so that it does not count any more. One that
    /// lives asks again with its ticket, within a third of the heartbeat timeout, and gets its old
    /// place.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for what is no id; nothing is sent then. [`Error::Unavailable`] when
    /// Redis gives no answer within twice the response timeout, [`Error::Rejected`].
    ///
    /// # Cancel safety
    ///
    /// It may have been taken away.
    ///
    /// # Examples
    ///
    /// ```
    /// # use redis_semaphore::{Error, Revoked, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
    /// # let name = uuid::Uuid::new_v4().to_string();
    /// # let semaphore = client.semaphore(name).limit(3).build()?;
    /// # let permit = semaphore.acquire().await?;
    /// for holder in semaphore.inspect().await?.holders {
    ///     let revoked = semaphore.revoke(&holder.id).await?;
    ///     assert!(matches!(revoked, Revoked::Permit { .. }));
    /// }
    /// // Its holder hears of it when it asks.
    /// assert!(matches!(permit.refresh().await, Err(Error::Lost { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn revoke(&self, id: &str) -> Result<Revoked, Error> {
        let lease = id::lease_of(id).ok_or_else(|| {
            let reason = format!(
                "{id:?} is none: inspect shows them, as in \
                 P:web-7.4711.k3f9zq:1:30000:9fJ2mQ0xV7sT1bLc"
            );
            Error::invalid("id", reason)
        })?;
        Ok(match self.core.revoke(id).await? {
            1 => Revoked::Permit { lease },
            2 => Revoked::Request,
            _ => Revoked::Nothing,
        })
    }
}
