//! The limit, as all processes share it.

use super::Semaphore;
use crate::error::Error;
use crate::semaphore::core::{Change, Limits};

impl Semaphore {
    /// The limit in force; see [`Inspection::limit`](crate::Inspection::limit).
    ///
    /// # Errors
    ///
    /// As for [`inspect`](Self::inspect).
    ///
    /// # Cancel safety
    ///
    /// Safe: it only looks.
    ///
    /// # Examples
    ///
    /// See [`set_limit`](Self::set_limit).
    pub async fn limit(&self) -> Result<u32, Error> {
        Ok(self.core.inspect_page("limit", (0, 0), (0, 0)).await?.limit)
    }

    /// Puts another limit in force, for all processes, until [`clear_limit`](Self::clear_limit).
    /// Answers the limit before: the configured one, if Redis knew of none. Raising it serves the
    /// queue at once; lowering it takes nothing away: it drains. 0 pauses the semaphore.
    ///
    /// A call that has no answer is made again, and counts once, however often it arrives within
    /// five response timeouts; where the first one did, the limit before is that which it has set.
    /// One that failed with [`Error::Unavailable`] may still arrive seconds later: look at
    /// [`limit`](Self::limit) then.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] when Redis gives no answer within twice the response timeout,
    /// [`Error::Rejected`].
    ///
    /// # Cancel safety
    ///
    /// The limit may have been set.
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

    /// Adds to the limit in force: the textbook's V. Answers the limit now.
    ///
    /// # Errors
    ///
    /// As for [`set_limit`](Self::set_limit); [`Error::Rejected`] also when the limit would exceed
    /// `u32::MAX`.
    ///
    /// # Cancel safety
    ///
    /// The permits may have been added. (A repeated call within adds them once.)
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
    /// // ... and another one consumes the signal.
    /// finished.acquire().await?.forget().await?;
    /// assert_eq!(finished.available_permits().await?, 0);
    /// # finished.clear_limit().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn add_permits(&self, n: u32) -> Result<u32, Error> {
        self.core.change_limit(Change::Add(n)).await.map(effective_limit)
    }

    /// Puts the declared limit in force again. Answers the limit now: 0 where
    /// nobody has declared one, as with initial permits, which start anew with the next acquire.
    ///
    /// # Errors
    ///
    /// As for [`set_limit`](Self::set_limit).
    ///
    /// # Cancel safety
    ///
    /// The limit may have been cleared.
    ///
    /// # Examples
    ///
    /// See [`set_limit`](Self::set_limit).
    pub async fn clear_limit(&self) -> Result<u32, Error> {
        self.core.change_limit(Change::Clear).await.map(effective_limit)
    }
}

fn effective_limit(limits: Limits) -> u32 {
    u32::try_from(limits.now).unwrap_or(0)
}
