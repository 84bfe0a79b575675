//! What a process has once, and the thread that works for it.

use std::fmt;
use std::sync::Arc;

use super::SemaphoreBuilder;
use super::home::Home;
use crate::client::Names;
use crate::diagnosis::Diagnosis;
use crate::error::Error;

/// As [`SemaphoreClient`](crate::SemaphoreClient), for threads. Cheap to clone.
///
/// # Examples
///
/// See the [module](super).
#[derive(Clone)]
pub struct SemaphoreClient {
    home: Arc<Home>,
}

impl SemaphoreClient {
    /// As [`SemaphoreClient::connect`](crate::SemaphoreClient::connect).
    ///
    /// # Errors
    ///
    /// As there; and [`Error::Invalid`] on a thread of an async runtime, or where no thread can be
    /// started.
    ///
    /// # Examples
    ///
    /// See the [module](super).
    pub fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_with(crate::SemaphoreClient::connect(url))
    }

    /// Connects in another way: with settings of your own, to a cluster, to what Sentinel names.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect).
    ///
    /// # Examples
    ///
    /// ```
    /// use redis_semaphore::blocking::SemaphoreClient;
    ///
    /// # fn main() -> Result<(), redis_semaphore::Error> {
    /// let url = std::env::var("REDIS_URL").unwrap();
    /// let settings = redis_semaphore::SemaphoreClient::builder().prefix("shop:sem").client_name("importer");
    /// let client = SemaphoreClient::connect_with(settings.connect(&url))?;
    /// # client.shutdown()
    /// # }
    /// ```
    pub fn connect_with(
        connecting: impl Future<Output = Result<crate::SemaphoreClient, Error>>,
    ) -> Result<Self, Error> {
        Ok(Self { home: Home::connect(connecting)? })
    }

    /// As [`SemaphoreClient::local`](crate::SemaphoreClient::local); but its clock is that of a
    /// thread in the background, and goes on. Feature `local`.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect).
    ///
    /// # Examples
    ///
    /// ```
    /// use redis_semaphore::blocking::SemaphoreClient;
    ///
    /// # fn main() -> Result<(), redis_semaphore::Error> {
    /// let client = SemaphoreClient::local()?;
    /// let other = client.another_process()?;
    /// let permit = other.semaphore("exports").limit(1).build()?.acquire()?;
    /// assert!(client.semaphore("exports").limit(1).build()?.try_acquire()?.is_none());
    /// # permit.release()
    /// # }
    /// ```
    #[cfg(feature = "local")]
    pub fn local() -> Result<Self, Error> {
        Self::connect_with(async { crate::SemaphoreClient::local() })
    }

    /// As [`SemaphoreClient::another_process`](crate::SemaphoreClient::another_process). Feature
    /// `local`.
    ///
    /// # Errors
    ///
    /// As there; and as for [`connect`](Self::connect).
    ///
    /// # Examples
    ///
    /// See [`local`](Self::local).
    #[cfg(feature = "local")]
    pub fn another_process(&self) -> Result<Self, Error> {
        let first = self.home.semaphores();
        Self::connect_with(async { first.another_process() })
    }

    /// As [`SemaphoreClient::semaphore`](crate::SemaphoreClient::semaphore).
    ///
    /// # Examples
    ///
    /// See [`SemaphoreBuilder`].
    pub fn semaphore(&self, name: impl Into<String>) -> SemaphoreBuilder {
        SemaphoreBuilder::new(self.home.semaphores().semaphore(name), self.home.clone())
    }

    /// As [`SemaphoreClient::names`](crate::SemaphoreClient::names).
    ///
    /// # Errors
    ///
    /// As there; and [`Error::Invalid`] on a thread of an async runtime.
    ///
    /// # Examples
    ///
    /// See [`SemaphoreClient::names`](crate::SemaphoreClient::names).
    pub fn names(&self) -> Result<Names, Error> {
        self.home.wait(self.home.semaphores().names())?
    }

    /// As [`SemaphoreClient::doctor`](crate::SemaphoreClient::doctor).
    ///
    /// # Errors
    ///
    /// As there; and [`Error::Invalid`] on a thread of an async runtime.
    ///
    /// # Examples
    ///
    /// See [`Diagnosis`].
    pub fn doctor(&self) -> Result<Diagnosis, Error> {
        self.home.wait(self.home.semaphores().doctor())?
    }

    /// As [`SemaphoreClient::shutdown`](crate::SemaphoreClient::shutdown). The drop of the last
    /// handle does the same: see [the end of a program](super#the-end-of-a-program).
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] on a thread of an async runtime; nothing was done.
    ///
    /// # Examples
    ///
    /// See the [module](super).
    pub fn shutdown(&self) -> Result<(), Error> {
        self.home.wait(self.home.semaphores().shutdown())
    }
}

impl fmt::Debug for SemaphoreClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.home.semaphores().fmt(f)
    }
}
