//! One acquire with its own settings, for threads.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Permit;
use super::io_runtime::IoRuntime;
use crate::error::Error;
use crate::semaphore::Group;

/// A request for a permit with its own weight, head start and timeout: see
/// [`AcquireRequest`](crate::AcquireRequest).
///
/// # Examples
///
/// ```
/// # use std::time::Duration;
/// # use redis_semaphore::blocking::SemaphoreClient;
/// # fn main() -> Result<(), redis_semaphore::Error> {
/// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap())?;
/// # let name = uuid::Uuid::new_v4().to_string();
/// let semaphore = client.semaphore(name).limit(3).build()?;
/// let permit = semaphore.request().weight(2).timeout(Duration::from_secs(5)).acquire()?;
/// assert_eq!(permit.weight(), 2);
/// # drop(permit);
/// # client.shutdown()
/// # }
/// ```
#[derive(Clone)]
#[must_use = "acquire() or try_acquire() sends it"]
pub struct AcquireRequest {
    pub(super) inner: crate::AcquireRequest,
    pub(super) io_runtime: Arc<IoRuntime>,
}

impl AcquireRequest {
    /// Sets the weight: see [`AcquireRequest::weight`](crate::AcquireRequest::weight).
    pub fn weight(self, weight: u32) -> Self {
        Self { inner: self.inner.weight(weight), ..self }
    }

    /// Sets the head start: see [`AcquireRequest::head_start`](crate::AcquireRequest::head_start).
    pub fn head_start(self, head_start: Duration) -> Self {
        Self { inner: self.inner.head_start(head_start), ..self }
    }

    /// Sets the group: see [`AcquireRequest::group`](crate::AcquireRequest::group).
    pub fn group(self, group: impl Into<Group>) -> Self {
        Self { inner: self.inner.group(group), ..self }
    }

    /// Sets the timeout: see [`AcquireRequest::timeout`](crate::AcquireRequest::timeout).
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { inner: self.inner.timeout(timeout), ..self }
    }

    /// Removes the timeout: see
    /// [`AcquireRequest::without_timeout`](crate::AcquireRequest::without_timeout).
    pub fn without_timeout(self) -> Self {
        Self { inner: self.inner.without_timeout(), ..self }
    }

    /// Waits in the queue for the permit: see
    /// [`AcquireRequest::acquire`](crate::AcquireRequest::acquire).
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`] on a thread of an async runtime.
    /// - The errors of [`AcquireRequest::acquire`](crate::AcquireRequest::acquire).
    pub fn acquire(self) -> Result<Permit, Error> {
        let inner = self.io_runtime.wait(self.inner.acquire())??;
        Ok(Permit { inner, io_runtime: self.io_runtime })
    }

    /// Returns the permit if it fits now, and `None` otherwise: see
    /// [`AcquireRequest::try_acquire`](crate::AcquireRequest::try_acquire).
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`] on a thread of an async runtime.
    /// - The errors of [`AcquireRequest::try_acquire`](crate::AcquireRequest::try_acquire).
    pub fn try_acquire(self) -> Result<Option<Permit>, Error> {
        let permit = self.io_runtime.wait(self.inner.try_acquire())??;
        Ok(permit.map(|inner| Permit { inner, io_runtime: self.io_runtime }))
    }
}

impl fmt::Debug for AcquireRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
