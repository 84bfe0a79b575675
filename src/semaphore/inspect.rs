//! Who holds and who waits, a page at a time.

use std::ops::Range;

use crate::error::Error;
use crate::protocol::Inspection;
use crate::protocol::id::LAST_NUMBER;
use crate::semaphore::Semaphore;

/// How many holders and waiters one inspection tells of.
const PAGE: u64 = 1000;

impl Semaphore {
    /// Who holds and who waits, up to 1,000 of each.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] when Redis gives no answer within twice the response timeout,
    /// [`Error::Rejected`].
    ///
    /// # Cancel safety
    ///
    /// Safe: it only looks.
    ///
    /// # Examples
    ///
    /// See [`Inspection`].
    pub async fn inspect(&self) -> Result<Inspection, Error> {
        self.inspect_range(0..PAGE, 0..PAGE).await
    }

    /// As [`inspect`](Self::inspect), with these holders and waiters alone, counted from 0: for the
    /// next page, or for no more than is needed. Of a range the first 1,000. Between two calls they
    /// come and go, so one may be told twice or not at all.
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
