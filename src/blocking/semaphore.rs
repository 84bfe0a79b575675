//! A semaphore for threads.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::io_runtime::IoRuntime;
use super::{AcquireRequest, Permit};
use crate::error::Error;
use crate::protocol::{GroupInspection, Inspection};
use crate::semaphore::{DetachedPermit, Revoked};

/// A [`Semaphore`](crate::Semaphore) for threads: its calls block the thread. The calls return the
/// errors of the async methods, and [`Error::Invalid`] on a thread of an async runtime. Clones are
/// cheap.
///
/// # Examples
///
/// ```
/// # use redis_semaphore::blocking::SemaphoreClient;
/// # fn main() -> Result<(), redis_semaphore::Error> {
/// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap())?;
/// # let name = uuid::Uuid::new_v4().to_string();
/// let semaphore = client.semaphore(name).limit(3).build()?;
/// std::thread::scope(|scope| {
///     for _ in 0..10 {
///         scope.spawn(|| {
///             let permit = semaphore.acquire().expect("Redis is there");
///             // At most three threads, over all processes, are here at the same time.
///             permit.release().expect("it was held until now");
///         });
///     }
/// });
/// assert_eq!(semaphore.available_permits()?, 3);
/// # client.shutdown()
/// # }
/// ```
#[derive(Clone)]
pub struct Semaphore {
    pub(super) inner: crate::Semaphore,
    pub(super) io_runtime: Arc<IoRuntime>,
}

impl Semaphore {
    fn permit(&self, inner: crate::Permit) -> Permit {
        Permit { inner, io_runtime: self.io_runtime.clone() }
    }

    /// Returns the name, without the prefix: see [`Semaphore::name`](crate::Semaphore::name).
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Creates a request with its own settings: see
    /// [`Semaphore::request`](crate::Semaphore::request).
    pub fn request(&self) -> AcquireRequest {
        AcquireRequest { inner: self.inner.request(), io_runtime: self.io_runtime.clone() }
    }

    /// Waits in the queue for one permit: see [`Semaphore::acquire`](crate::Semaphore::acquire).
    pub fn acquire(&self) -> Result<Permit, Error> {
        Ok(self.permit(self.io_runtime.wait(self.inner.acquire())??))
    }

    /// Waits in the queue for a permit of weight `n`: see
    /// [`Semaphore::acquire_many`](crate::Semaphore::acquire_many).
    pub fn acquire_many(&self, n: u32) -> Result<Permit, Error> {
        Ok(self.permit(self.io_runtime.wait(self.inner.acquire_many(n))??))
    }

    /// Waits in the queue for up to `timeout`: see
    /// [`Semaphore::acquire_timeout`](crate::Semaphore::acquire_timeout).
    pub fn acquire_timeout(&self, timeout: Duration) -> Result<Permit, Error> {
        Ok(self.permit(self.io_runtime.wait(self.inner.acquire_timeout(timeout))??))
    }

    /// Takes one permit if one is free: see
    /// [`Semaphore::try_acquire`](crate::Semaphore::try_acquire).
    pub fn try_acquire(&self) -> Result<Option<Permit>, Error> {
        let permit = self.io_runtime.wait(self.inner.try_acquire())??;
        Ok(permit.map(|permit| self.permit(permit)))
    }

    /// Takes a permit of weight `n` if it fits now: see
    /// [`Semaphore::try_acquire_many`](crate::Semaphore::try_acquire_many).
    pub fn try_acquire_many(&self, n: u32) -> Result<Option<Permit>, Error> {
        let permit = self.io_runtime.wait(self.inner.try_acquire_many(n))??;
        Ok(permit.map(|permit| self.permit(permit)))
    }

    /// Adopts a detached permit: see [`Semaphore::adopt`](crate::Semaphore::adopt).
    pub fn adopt(&self, detached: DetachedPermit) -> Result<Permit, Error> {
        Ok(self.permit(self.io_runtime.wait(self.inner.adopt(detached))??))
    }

    /// Revokes a permit or a request: see [`Semaphore::revoke`](crate::Semaphore::revoke).
    pub fn revoke(&self, id: &str) -> Result<Revoked, Error> {
        self.io_runtime.wait(self.inner.revoke(id))?
    }

    /// Closes the semaphore, which ends the waits of all threads: see
    /// [`Semaphore::close`](crate::Semaphore::close).
    pub fn close(&self) {
        self.inner.close();
    }

    /// Returns whether the semaphore is closed: see
    /// [`Semaphore::is_closed`](crate::Semaphore::is_closed).
    pub fn is_closed(&self) -> bool {
        self.inner.is_closed()
    }

    /// Returns how much of the limit is free: see
    /// [`Semaphore::available_permits`](crate::Semaphore::available_permits).
    pub fn available_permits(&self) -> Result<u32, Error> {
        self.io_runtime.wait(self.inner.available_permits())?
    }

    /// Returns the holders and waiters: see [`Semaphore::inspect`](crate::Semaphore::inspect).
    pub fn inspect(&self) -> Result<Inspection, Error> {
        self.io_runtime.wait(self.inner.inspect())?
    }

    /// Returns a range of the holders and waiters: see
    /// [`Semaphore::inspect_range`](crate::Semaphore::inspect_range).
    pub fn inspect_range(
        &self,
        holders: Range<u64>,
        waiters: Range<u64>,
    ) -> Result<Inspection, Error> {
        self.io_runtime.wait(self.inner.inspect_range(holders, waiters))?
    }

    /// Returns the groups: see [`Semaphore::inspect_groups`](crate::Semaphore::inspect_groups).
    pub fn inspect_groups(&self) -> Result<Vec<GroupInspection>, Error> {
        self.io_runtime.wait(self.inner.inspect_groups())?
    }

    /// Sets the runtime cap of a group: see
    /// [`Semaphore::set_group_cap`](crate::Semaphore::set_group_cap).
    pub fn set_group_cap(&self, group: &str, cap: u32) -> Result<(), Error> {
        self.io_runtime.wait(self.inner.set_group_cap(group, cap))?
    }

    /// Clears the runtime cap of a group: see
    /// [`Semaphore::clear_group_cap`](crate::Semaphore::clear_group_cap).
    pub fn clear_group_cap(&self, group: &str) -> Result<(), Error> {
        self.io_runtime.wait(self.inner.clear_group_cap(group))?
    }

    /// Makes the server grant free permits to waiters: see
    /// [`Semaphore::wake`](crate::Semaphore::wake).
    pub fn wake(&self) -> Result<u64, Error> {
        self.io_runtime.wait(self.inner.wake())?
    }

    /// Returns the effective limit: see [`Semaphore::limit`](crate::Semaphore::limit).
    pub fn limit(&self) -> Result<u32, Error> {
        self.io_runtime.wait(self.inner.limit())?
    }

    /// Sets the runtime limit: see [`Semaphore::set_limit`](crate::Semaphore::set_limit).
    pub fn set_limit(&self, limit: u32) -> Result<u32, Error> {
        self.io_runtime.wait(self.inner.set_limit(limit))?
    }

    /// Adds to the effective limit: see [`Semaphore::add_permits`](crate::Semaphore::add_permits).
    pub fn add_permits(&self, n: u32) -> Result<u32, Error> {
        self.io_runtime.wait(self.inner.add_permits(n))?
    }

    /// Clears the runtime limit: see [`Semaphore::clear_limit`](crate::Semaphore::clear_limit).
    pub fn clear_limit(&self) -> Result<u32, Error> {
        self.io_runtime.wait(self.inner.clear_limit())?
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
