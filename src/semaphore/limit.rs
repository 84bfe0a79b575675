//! Reads and changes the limit that all processes share.

use super::Semaphore;
use crate::error::Error;
use crate::semaphore::core::{Change, Limits};

impl Semaphore {
    /// Returns the effective limit: see [`Inspection::limit`](crate::Inspection::limit).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`inspect`](Self::inspect).
    ///
    /// # Cancel safety
    ///
    /// Safe: the call changes nothing.
    pub async fn limit(&self) -> Result<u32, Error> {
        Ok(self.core.inspect_page("limit", (0, 0), (0, 0)).await?.limit)
    }

    /// Sets the runtime limit for all processes, until [`clear_limit`](Self::clear_limit). Returns
    /// the previous effective limit, or the configured limit if Redis knew no limit. A limit of 0
    /// pauses the semaphore.
    ///
    /// If the limit rises, waiters are granted permits immediately. If the limit falls, no permit
    /// is taken away: holders finish their work.
    ///
    /// A call without a reply is retried. The change counts once, even if several attempts reach
    /// the server within five response timeouts. If the first attempt changed the limit and its
    /// reply was lost, the call returns the new limit. After [`Error::Unavailable`], an attempt may
    /// still reach the server seconds later. So wait some seconds before you check
    /// [`limit`](Self::limit).
    ///
    /// # Errors
    ///
    /// - [`Error::Unavailable`] if Redis is unavailable for twice the response timeout.
    /// - [`Error::Rejected`] if Redis returns a permanent error.
    /// - [`Error::Shutdown`] if the [I/O runtime](crate::SemaphoreClient#runtimes) has ended.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the limit may or may not have been set.
    ///
    /// # Examples
    ///
    /// ```
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
    /// # let name = uuid::Uuid::new_v4().to_string();
    /// let semaphore = client.semaphore(name).limit(3).build()?;
    /// assert_eq!(semaphore.set_limit(5).await?, 3);
    /// assert_eq!(semaphore.limit().await?, 5);
    /// assert_eq!(semaphore.clear_limit().await?, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn set_limit(&self, limit: u32) -> Result<u32, Error> {
        let before = self.core.change_limit(Change::Set(limit)).await?.before;
        Ok(u32::try_from(before).unwrap_or(self.core.settings.limit.number()))
    }

    /// Sets the runtime limit to the effective limit plus `n`, like the operation V of a textbook
    /// semaphore. Returns the new limit.
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`] if the limit would exceed `u32::MAX`.
    /// - The errors of [`set_limit`](Self::set_limit).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the permits may or may not have been added. The client's own
    /// retries of a call add nothing more.
    ///
    /// # Examples
    ///
    /// ```
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
    /// # let name = uuid::Uuid::new_v4().to_string();
    /// let finished = client.semaphore(name).initial_permits(0).build()?;
    /// // One process signals ...
    /// finished.add_permits(1).await?;
    /// assert_eq!(finished.available_permits().await?, 1);
    /// // ... and another process consumes the signal.
    /// finished.acquire().await?.forget().await?;
    /// assert_eq!(finished.available_permits().await?, 0);
    /// # finished.clear_limit().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn add_permits(&self, n: u32) -> Result<u32, Error> {
        self.core.change_limit(Change::Add(n)).await.map(effective_limit)
    }

    /// Clears the runtime limit, so that the declared limit applies again. Returns the effective
    /// limit, which is 0 if no limit is declared. Initial permits are cleared, too. The next
    /// acquire with the setting [`initial_permits`](crate::SemaphoreBuilder::initial_permits) sets
    /// them again.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`set_limit`](Self::set_limit).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the limit may or may not have been cleared.
    pub async fn clear_limit(&self) -> Result<u32, Error> {
        self.core.change_limit(Change::Clear).await.map(effective_limit)
    }
}

fn effective_limit(limits: Limits) -> u32 {
    u32::try_from(limits.now).unwrap_or(0)
}
