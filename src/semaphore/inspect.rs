//! Inspects a semaphore: returns its holders and waiters, one page at a time.

use std::ops::Range;

use crate::error::Error;
use crate::protocol::Inspection;
use crate::protocol::id::LAST_NUMBER;
use crate::semaphore::Semaphore;

/// The maximum number of holders, and of waiters, in one inspection.
const PAGE: u64 = 1000;

impl Semaphore {
    /// Returns the holders and waiters, up to 1,000 of each.
    ///
    /// # Errors
    ///
    /// - [`Error::Unavailable`] if Redis is unavailable for twice the response timeout.
    /// - [`Error::Rejected`] if Redis returns a permanent error.
    /// - [`Error::Shutdown`] if the [I/O runtime](crate::SemaphoreClient#runtimes) has ended.
    ///
    /// # Cancel safety
    ///
    /// Safe: the call changes nothing.
    pub async fn inspect(&self) -> Result<Inspection, Error> {
        self.inspect_range(0..PAGE, 0..PAGE).await
    }

    /// Returns the holders and the waiters whose indexes are in these ranges. Indexes count from 0.
    /// Returns at most 1,000 of each. Use this method to read further pages, or to read fewer
    /// entries. Holders and waiters change between two calls, so pages may repeat or omit entries.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`inspect`](Self::inspect).
    ///
    /// # Cancel safety
    ///
    /// Safe: the call changes nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
    /// # let name = uuid::Uuid::new_v4().to_string();
    /// # let semaphore = client.semaphore(name).limit(3).build()?;
    /// let permits = [semaphore.acquire().await?, semaphore.acquire().await?];
    /// assert_eq!(semaphore.inspect_range(1..100, 0..0).await?.holders.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn inspect_range(
        &self,
        holders: Range<u64>,
        waiters: Range<u64>,
    ) -> Result<Inspection, Error> {
        let page = |Range { start, end }: Range<u64>| {
            (start.min(LAST_NUMBER), end.saturating_sub(start).min(PAGE))
        };
        self.core.inspect_page("inspect", page(holders), page(waiters)).await
    }
}
