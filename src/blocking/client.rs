//! The client for threads.

use std::fmt;
use std::sync::Arc;

use super::SemaphoreBuilder;
use super::io_runtime::IoRuntime;
use crate::client::Names;
use crate::diagnosis::Diagnosis;
use crate::error::Error;

/// The connection to Redis that all threads of a process share: see
/// [`SemaphoreClient`](crate::SemaphoreClient). Clones are cheap.
#[derive(Clone)]
pub struct SemaphoreClient {
    io_runtime: Arc<IoRuntime>,
}

impl SemaphoreClient {
    /// Connects to a server: see [`SemaphoreClient::connect`](crate::SemaphoreClient::connect).
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`] on a thread of an async runtime, or if no thread can be started.
    /// - The errors of [`SemaphoreClient::connect`](crate::SemaphoreClient::connect).
    pub fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_with(crate::SemaphoreClient::connect(url))
    }

    /// Connects with a future of the async API. Use this method for custom settings, for a cluster,
    /// or for the primary that Sentinel names.
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`] on a thread of an async runtime, or if no thread can be started.
    /// - The errors of the future `connecting`.
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
        Ok(Self { io_runtime: IoRuntime::connect(connecting)? })
    }

    /// Creates semaphores in memory: see [`SemaphoreClient::local`](crate::SemaphoreClient::local).
    /// The clock of these semaphores belongs to a background thread, and cannot be paused. Requires
    /// the feature `local`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`connect`](Self::connect).
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

    /// Simulates another process: see
    /// [`SemaphoreClient::another_process`](crate::SemaphoreClient::another_process). Requires the
    /// feature `local`.
    ///
    /// # Errors
    ///
    /// - The errors of [`connect`](Self::connect).
    /// - The errors of
    ///   [`SemaphoreClient::another_process`](crate::SemaphoreClient::another_process).
    #[cfg(feature = "local")]
    pub fn another_process(&self) -> Result<Self, Error> {
        let first = self.io_runtime.semaphores();
        Self::connect_with(async { first.another_process() })
    }

    /// Returns a builder for a semaphore of this name: see
    /// [`SemaphoreClient::semaphore`](crate::SemaphoreClient::semaphore).
    pub fn semaphore(&self, name: impl Into<String>) -> SemaphoreBuilder {
        let inner = self.io_runtime.semaphores().semaphore(name);
        SemaphoreBuilder { inner, io_runtime: self.io_runtime.clone() }
    }

    /// Returns the names of the semaphores on the server: see
    /// [`SemaphoreClient::names`](crate::SemaphoreClient::names).
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`] on a thread of an async runtime.
    /// - The errors of [`SemaphoreClient::names`](crate::SemaphoreClient::names).
    pub fn names(&self) -> Result<Names, Error> {
        self.io_runtime.wait(self.io_runtime.semaphores().names())?
    }

    /// Checks the server for conditions that endanger semaphores: see
    /// [`SemaphoreClient::doctor`](crate::SemaphoreClient::doctor).
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`] on a thread of an async runtime.
    /// - The errors of [`SemaphoreClient::doctor`](crate::SemaphoreClient::doctor).
    pub fn doctor(&self) -> Result<Diagnosis, Error> {
        self.io_runtime.wait(self.io_runtime.semaphores().doctor())?
    }

    /// Ends all waits and delivers pending releases: see
    /// [`SemaphoreClient::shutdown`](crate::SemaphoreClient::shutdown). Dropping the last handle
    /// has the same effect: see [the end of a program](super#the-end-of-a-program).
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`] on a thread of an async runtime. Nothing was done.
    pub fn shutdown(&self) -> Result<(), Error> {
        self.io_runtime.wait(self.io_runtime.semaphores().shutdown())
    }
}

impl fmt::Debug for SemaphoreClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.io_runtime.semaphores().fmt(f)
    }
}
