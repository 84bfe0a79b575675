//! Building a semaphore for threads.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Semaphore;
use super::io_runtime::IoRuntime;
use crate::error::Error;

/// Configures a [`Semaphore`] for threads: see [`SemaphoreBuilder`](crate::SemaphoreBuilder).
///
/// # Examples
///
/// ```
/// # use std::time::Duration;
/// # use redis_semaphore::blocking::SemaphoreClient;
/// # fn main() -> Result<(), redis_semaphore::Error> {
/// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap())?;
/// let semaphore = client
///     .semaphore("exports")
///     .limit(2)
///     .lease(Duration::from_secs(60))
///     .acquire_timeout(Duration::from_secs(10))
///     .build()?;
/// # client.shutdown()
/// # }
/// ```
#[must_use = "build() makes the semaphore"]
pub struct SemaphoreBuilder {
    pub(super) inner: crate::SemaphoreBuilder,
    pub(super) io_runtime: Arc<IoRuntime>,
}

impl SemaphoreBuilder {
    /// Sets the limit: see [`SemaphoreBuilder::limit`](crate::SemaphoreBuilder::limit).
    pub fn limit(self, limit: u32) -> Self {
        Self { inner: self.inner.limit(limit), ..self }
    }

    /// Makes this a signaling semaphore: see
    /// [`SemaphoreBuilder::initial_permits`](crate::SemaphoreBuilder::initial_permits).
    pub fn initial_permits(self, permits: u32) -> Self {
        Self { inner: self.inner.initial_permits(permits), ..self }
    }

    /// Uses the existing limit: see
    /// [`SemaphoreBuilder::existing_limit`](crate::SemaphoreBuilder::existing_limit).
    pub fn existing_limit(self) -> Self {
        Self { inner: self.inner.existing_limit(), ..self }
    }

    /// Sets the lease: see [`SemaphoreBuilder::lease`](crate::SemaphoreBuilder::lease).
    pub fn lease(self, lease: Duration) -> Self {
        Self { inner: self.inner.lease(lease), ..self }
    }

    /// Sets whether permits are refreshed in the background: see
    /// [`SemaphoreBuilder::auto_refresh`](crate::SemaphoreBuilder::auto_refresh).
    pub fn auto_refresh(self, auto_refresh: bool) -> Self {
        Self { inner: self.inner.auto_refresh(auto_refresh), ..self }
    }

    /// Sets the longest time for which a permit is held: see
    /// [`SemaphoreBuilder::max_hold`](crate::SemaphoreBuilder::max_hold).
    pub fn max_hold(self, max_hold: Duration) -> Self {
        Self { inner: self.inner.max_hold(max_hold), ..self }
    }

    /// Sets how long `acquire` waits: see
    /// [`SemaphoreBuilder::acquire_timeout`](crate::SemaphoreBuilder::acquire_timeout).
    pub fn acquire_timeout(self, timeout: Duration) -> Self {
        Self { inner: self.inner.acquire_timeout(timeout), ..self }
    }

    /// Sets the share of groups that set none: see
    /// [`SemaphoreBuilder::group_share`](crate::SemaphoreBuilder::group_share).
    pub fn group_share(self, share: u16) -> Self {
        Self { inner: self.inner.group_share(share), ..self }
    }

    /// Sets the cap of groups that set none: see
    /// [`SemaphoreBuilder::group_cap`](crate::SemaphoreBuilder::group_cap).
    pub fn group_cap(self, cap: u32) -> Self {
        Self { inner: self.inner.group_cap(cap), ..self }
    }

    /// Sets whether dropping a permit lets it expire: see
    /// [`SemaphoreBuilder::let_expire_on_drop`](crate::SemaphoreBuilder::let_expire_on_drop).
    pub fn let_expire_on_drop(self, let_expire: bool) -> Self {
        Self { inner: self.inner.let_expire_on_drop(let_expire), ..self }
    }

    /// Requires acknowledgements from replicas: see
    /// [`SemaphoreBuilder::acknowledged_by`](crate::SemaphoreBuilder::acknowledged_by).
    pub fn acknowledged_by(self, replicas: u32, within: Duration) -> Self {
        Self { inner: self.inner.acknowledged_by(replicas, within), ..self }
    }

    /// Builds the semaphore, and sends nothing yet: see
    /// [`SemaphoreBuilder::build`](crate::SemaphoreBuilder::build).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`SemaphoreBuilder::build`](crate::SemaphoreBuilder::build).
    pub fn build(self) -> Result<Semaphore, Error> {
        Ok(Semaphore { inner: self.inner.build()?, io_runtime: self.io_runtime })
    }
}

impl fmt::Debug for SemaphoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
