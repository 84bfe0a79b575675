//! Revoking other clients' permits and requests.

use std::time::Duration;

use super::Semaphore;
use crate::error::Error;
use crate::protocol::id;

/// The result of [`Semaphore::revoke`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Revoked {
    /// A permit was revoked. Its holder does not know of the revocation yet.
    #[non_exhaustive]
    Permit {
        /// The lease that the holder requested. The holder finds out at its next refresh, at most a
        /// third of this time later. Without automatic refresh, the holder may continue for the
        /// whole lease.
        lease: Duration,
    },
    /// A waiting request was removed. If its process is alive, the process sends the request again
    /// at the next heartbeat.
    Request,
    /// Nothing was revoked, because the server does not know the ID. For example, the permit was
    /// released, or its lease has expired. This variant is also returned if the first attempt
    /// revoked the permit or request, but its reply was lost.
    Nothing,
}

impl Semaphore {
    /// Revokes the permit or the waiting request with this `id`. [`inspect`](Self::inspect) returns
    /// the IDs. Operators use this method if a process hangs or cannot be reached. The freed weight
    /// is granted to waiters immediately.
    ///
    /// **How long both holders may work.** The old holder finds out at its next refresh, at most a
    /// third of its lease later. Until then, the old and the new holder work at the same time. A
    /// holder that cannot reach Redis, or does not refresh, continues until its own deadline, which
    /// is at most a whole lease later. If two holders must never work at the same time, end the old
    /// holder's process instead. The server then frees the permit when the lease expires.
    ///
    /// Revoke a request only if its process is gone. A live process sends the request again within
    /// a third of the heartbeat timeout. The request gets its old position, because the process
    /// sends its old ticket.
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`] if `id` is not an ID. Nothing was sent.
    /// - [`Error::Unavailable`] if Redis is unavailable for twice the response timeout.
    /// - [`Error::Rejected`] if Redis returns a permanent error.
    /// - [`Error::Shutdown`] if the [I/O runtime](crate::SemaphoreClient#runtimes) has ended.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the permit or request may or may not have been revoked.
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
    /// // The holder finds out at its next call.
    /// assert!(matches!(permit.refresh().await, Err(Error::Lost { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn revoke(&self, id: &str) -> Result<Revoked, Error> {
        let lease = id::lease_of(id).ok_or_else(|| {
            let reason = format!(
                "{id:?} is not an ID: inspect shows IDs, such as \
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
