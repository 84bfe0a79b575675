//! Reads and changes the runtime caps of groups.

use super::Semaphore;
use super::group::check_name;
use crate::error::Error;
use crate::semaphore::core::Change;

impl Semaphore {
    /// Sets the runtime cap of a [group](crate::Group) for all processes, until
    /// [`clear_group_cap`](Self::clear_group_cap). The runtime cap replaces the caps of all
    /// requests of this group. While it is 0, the group is granted no permit.
    ///
    /// If the cap rises, waiters are granted permits immediately. If the cap falls, no permit is
    /// taken away. [`inspect_groups`](Self::inspect_groups) returns the runtime caps. At most 100
    /// groups of a semaphore have runtime caps. A change counts once, as with
    /// [`set_limit`](Self::set_limit).
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`] if the name of the group is invalid, or if 100 other groups have
    ///   runtime caps.
    /// - The errors of [`set_limit`](Self::set_limit).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the cap may or may not have been set.
    ///
    /// # Examples
    ///
    /// ```
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
    /// # let name = uuid::Uuid::new_v4().to_string();
    /// let renders = client.semaphore(name).limit(20).build()?;
    /// renders.set_group_cap("tenant-7", 0).await?;
    /// assert!(renders.request().group("tenant-7").try_acquire().await?.is_none());
    /// renders.clear_group_cap("tenant-7").await?;
    /// assert!(renders.request().group("tenant-7").try_acquire().await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn set_group_cap(&self, group: &str, cap: u32) -> Result<(), Error> {
        self.change_group_cap(group, Some(cap)).await
    }

    /// Clears the runtime cap of a [group](crate::Group), so that the caps of its requests apply
    /// again.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`set_group_cap`](Self::set_group_cap).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the cap may or may not have been cleared.
    pub async fn clear_group_cap(&self, group: &str) -> Result<(), Error> {
        self.change_group_cap(group, None).await
    }

    async fn change_group_cap(&self, group: &str, cap: Option<u32>) -> Result<(), Error> {
        check_name(group)?;
        self.core.change_limit(Change::Cap(group, cap)).await.map(drop)
    }
}
