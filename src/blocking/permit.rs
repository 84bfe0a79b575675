//! A permit for threads.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::io_runtime::IoRuntime;
use crate::error::Error;
use crate::semaphore::{DetachedPermit, PermitWatch};

/// A [`Permit`](crate::Permit) for threads. Dropping a permit, on any thread, releases it in the
/// background. [The end of a program](super#the-end-of-a-program) waits for the release.
#[must_use = "an unused permit is released immediately"]
pub struct Permit {
    pub(super) inner: crate::Permit,
    pub(super) io_runtime: Arc<IoRuntime>,
}

impl Permit {
    /// Releases the permit: see [`Permit::release`](crate::Permit::release).
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`] on a thread of an async runtime. The permit is released in the
    ///   background.
    /// - The errors of [`Permit::release`](crate::Permit::release).
    pub fn release(self) -> Result<(), Error> {
        self.io_runtime.wait(self.inner.release())?
    }

    /// Releases the permit and subtracts its weight from the limit: see
    /// [`Permit::forget`](crate::Permit::forget).
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`] on a thread of an async runtime. The call continues in the background.
    /// - The errors of [`Permit::forget`](crate::Permit::forget).
    pub fn forget(self) -> Result<(), Error> {
        self.io_runtime.wait(self.inner.forget())?
    }

    /// Restarts the lease for the last time, and lets it expire: see
    /// [`Permit::let_expire`](crate::Permit::let_expire).
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`] on a thread of an async runtime. The call continues in the background.
    /// - The errors of [`Permit::let_expire`](crate::Permit::let_expire).
    pub fn let_expire(self) -> Result<(), Error> {
        self.io_runtime.wait(self.inner.let_expire())?
    }

    /// Detaches the permit for another process, and sends nothing: see
    /// [`Permit::detach`](crate::Permit::detach).
    pub fn detach(self) -> DetachedPermit {
        self.inner.detach()
    }

    /// Restarts the lease now: see [`Permit::refresh`](crate::Permit::refresh).
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`] on a thread of an async runtime.
    /// - The errors of [`Permit::refresh`](crate::Permit::refresh).
    pub fn refresh(&self) -> Result<(), Error> {
        self.io_runtime.wait(self.inner.refresh())?
    }

    /// Returns a watch: see [`Permit::watch`](crate::Permit::watch). In a loop, check the watch's
    /// [`is_held`](PermitWatch::is_held) regularly.
    pub fn watch(&self) -> PermitWatch {
        self.inner.watch()
    }

    /// Waits until the permit is lost: see [`Permit::lost`](crate::Permit::lost). Nothing else ends
    /// the wait, so use a thread that has no other work.
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`] on a thread of an async runtime.
    pub fn lost(&self) -> Result<(), Error> {
        self.io_runtime.wait(self.inner.lost())
    }

    /// Waits until the permit is lost, or until `timeout` has passed. Returns whether the permit is
    /// lost.
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`] on a thread of an async runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use redis_semaphore::{Error, blocking::SemaphoreClient};
    /// # fn main() -> Result<(), Error> {
    /// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap())?;
    /// # let name = uuid::Uuid::new_v4().to_string();
    /// # let semaphore = client.semaphore(name).limit(3).build()?;
    /// # let mut child = std::process::Command::new("true").spawn().unwrap();
    /// let permit = semaphore.acquire()?;
    /// // Checks the child regularly, and stops it when the permit is lost.
    /// while child.try_wait().unwrap().is_none() {
    ///     if permit.lost_timeout(Duration::from_millis(100))? {
    ///         child.kill().unwrap();
    ///     }
    /// }
    /// permit.release()?;
    /// # client.shutdown()
    /// # }
    /// ```
    pub fn lost_timeout(&self, timeout: Duration) -> Result<bool, Error> {
        lost_within(&self.io_runtime, self.inner.lost(), timeout)
    }

    /// Returns whether the permit is lost: see [`Permit::is_lost`](crate::Permit::is_lost).
    pub fn is_lost(&self) -> bool {
        self.inner.is_lost()
    }

    /// Returns for how long the permit is guaranteed to stay valid: see
    /// [`Permit::expires_in`](crate::Permit::expires_in).
    pub fn expires_in(&self) -> Duration {
        self.inner.expires_in()
    }

    /// Returns the fencing token: see [`Permit::fencing_token`](crate::Permit::fencing_token).
    pub fn fencing_token(&self) -> u64 {
        self.inner.fencing_token()
    }

    /// Returns the weight: see [`Permit::weight`](crate::Permit::weight).
    pub fn weight(&self) -> u32 {
        self.inner.weight()
    }

    /// Returns the ID: see [`Permit::id`](crate::Permit::id).
    pub fn id(&self) -> &str {
        self.inner.id()
    }
}

/// Returns whether `lost` completes within `timeout`.
pub(super) fn lost_within(
    io_runtime: &IoRuntime,
    lost: impl Future<Output = ()>,
    timeout: Duration,
) -> Result<bool, Error> {
    io_runtime.wait(async { tokio::time::timeout(timeout, lost).await.is_ok() })
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
