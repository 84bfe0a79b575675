//! Inspects a semaphore: returns its holders and waiters, one page at a time.

use std::ops::Range;

use crate::error::Error;
use crate::protocol::id::LAST_NUMBER;
use crate::protocol::{GroupInspection, Inspection};
use crate::semaphore::Semaphore;

/// The maximum number of holders, and of waiters, in one inspection.
const PAGE: u64 = 1000;
/// The maximum number of groups that wait, and of groups that hold permits, in one call.
const GROUPS_IN_CALL: u64 = 100;

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

    /// Returns the [groups](crate::Group), up to 1,000 that wait and 1,000 that hold permits. The
    /// groups that wait come first, in the order of their turns. The groups that only hold permits
    /// follow, the heaviest first. The requests without a group are one more group.
    ///
    /// Each call of the server returns up to 100 of these groups. Groups change between two calls,
    /// so the result may omit a group.
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
    /// # let renders = client.semaphore(name).limit(3).build()?;
    /// let permit = renders.request().group("tenant-7").weight(2).acquire().await?;
    /// for group in renders.inspect_groups().await? {
    ///     let name = group.name.as_deref().unwrap_or("no group");
    ///     println!("{name}: holds {}, {} wait", group.held, group.queued);
    /// #   assert_eq!((name, group.held), ("tenant-7", 2));
    /// }
    /// # permit.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn inspect_groups(&self) -> Result<Vec<GroupInspection>, Error> {
        let (mut groups, mut held): (Vec<GroupInspection>, _) = (Vec::new(), 0);
        for from in (0..PAGE).step_by(GROUPS_IN_CALL as usize) {
            let pages = [(0, 0), (0, 0), (from, GROUPS_IN_CALL)];
            let reply = self.core.call_inspect("inspect_groups", pages).await?;
            let (_, total, page) = reply.10;
            held = reply.4.max(0) as u64;
            groups.extend(page.into_iter().map(GroupInspection::read));
            if from + GROUPS_IN_CALL >= total {
                break;
            }
        }
        Ok(GroupInspection::completed(groups, held))
    }
}
