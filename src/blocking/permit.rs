//! What a thread holds.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::home::Home;
use crate::error::Error;
use crate::semaphore::{DetachedPermit, PermitWatch};

/// As [`Permit`](crate::Permit), for threads. Dropped, on whatever thread, it is given back in the
/// background. [The end of a program](super#the-end-of-a-program) waits for that.
///
/// # Examples
///
/// See [`Semaphore`](super::Semaphore).
#[must_use = "a permit that is dropped at once is given back at once"]
pub struct Permit {
    inner: crate::Permit,
    home: Arc<Home>,
}

impl Permit {
    pub(super) fn new(inner: crate::Permit, home: Arc<Home>) -> Self {
        Self { inner, home }
    }

    pub(super) fn parts(&self) -> (&crate::Permit, &Home) {
        (&self.inner, &self.home)
    }

    pub(super) fn split(self) -> (crate::Permit, Arc<Home>) {
        (self.inner, self.home)
    }

    /// As [`Permit::release`](crate::Permit::release).
    ///
    /// # Errors
    ///
    /// As there. On a thread of an async runtime [`Error::Invalid`]: then it is given back in the
    /// background.
    pub fn release(self) -> Result<(), Error> {
        self.home.wait(self.inner.release())?
    }

    /// As [`Permit::forget`](crate::Permit::forget).
    ///
    /// # Errors
    ///
    /// As there. On a thread of an async runtime [`Error::Invalid`]: then it is done in the
    /// background.
    pub fn forget(self) -> Result<(), Error> {
        self.home.wait(self.inner.forget())?
    }

    /// As [`Permit::let_expire`](crate::Permit::let_expire).
    ///
    /// # Errors
    ///
    /// As there. On a thread of an async runtime [`Error::Invalid`]: then it is left in the
    /// background.
    pub fn let_expire(self) -> Result<(), Error> {
        self.home.wait(self.inner.let_expire())?
    }

    /// As [`Permit::detach`](crate::Permit::detach): nothing is sent.
    pub fn detach(self) -> DetachedPermit {
        self.inner.detach()
    }

    /// As [`Permit::refresh`](crate::Permit::refresh).
    ///
    /// # Errors
    ///
    /// As there, and [`Error::Invalid`] on a thread of an async runtime.
    pub fn refresh(&self) -> Result<(), Error> {
        self.home.wait(self.inner.refresh())?
    }

    /// As [`Permit::watch`](crate::Permit::watch): a loop of a thread looks at
    /// [`is_held`](PermitWatch::is_held) now and then.
    pub fn watch(&self) -> PermitWatch {
        self.inner.watch()
    }

    /// As [`Permit::lost`](crate::Permit::lost): for a thread that has nothing else to do, as
    /// nothing else ends the wait.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] on a thread of an async runtime.
    pub fn lost(&self) -> Result<(), Error> {
        self.home.wait(self.inner.lost())
    }

    /// The same, at most for so long. Answers whether it is lost.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] on a thread of an async runtime.
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
    /// // It is looked after now and then, and stopped when the permit is lost.
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
        lost_within(&self.home, self.inner.lost(), timeout)
    }

    /// As [`Permit::is_lost`](crate::Permit::is_lost).
    pub fn is_lost(&self) -> bool {
        self.inner.is_lost()
    }

    /// As [`Permit::expires_in`](crate::Permit::expires_in).
    pub fn expires_in(&self) -> Duration {
        self.inner.expires_in()
    }

    /// As [`Permit::fencing_token`](crate::Permit::fencing_token).
    pub fn fencing_token(&self) -> u64 {
        self.inner.fencing_token()
    }

    /// As [`Permit::weight`](crate::Permit::weight).
    pub fn weight(&self) -> u32 {
        self.inner.weight()
    }

    /// As [`Permit::id`](crate::Permit::id).
    pub fn id(&self) -> &str {
        self.inner.id()
    }
}

/// Whether it is lost within that time.
pub(super) fn lost_within<T>(
    home: &Home,
    lost: impl Future<Output = T>,
    timeout: Duration,
) -> Result<bool, Error> {
    home.wait(async { tokio::time::timeout(timeout, lost).await.is_ok() })
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
