//! Acquiring permits of several semaphores, for threads.

use std::fmt;
use std::thread;
use std::time::Duration;

use super::io_runtime::check_thread;
use super::permit::lost_within;
use super::{AcquireRequest, Permit};
use crate::error::Error;
use crate::semaphore::first_lost;

/// Acquires permits of several semaphores: see [`acquire_all`](crate::acquire_all()).
///
/// # Errors
///
/// - [`Error::Invalid`] on a thread of an async runtime.
/// - The errors of the async [`acquire_all`](crate::acquire_all()).
///
/// # Examples
///
/// ```
/// use redis_semaphore::blocking::acquire_all;
/// # use redis_semaphore::blocking::SemaphoreClient;
/// # fn main() -> Result<(), redis_semaphore::Error> {
/// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap())?;
/// # let names = [(); 2].map(|()| uuid::Uuid::new_v4().to_string());
/// # let [rows, files] = names.map(|name| client.semaphore(name).limit(1).build().unwrap());
/// let permits = acquire_all([rows.request(), files.request()])?;
/// if let [row, file] = permits.as_slice() {
///     println!("written with {} and {}", row.fencing_token(), file.fencing_token());
/// }
/// permits.release()?;
/// # client.shutdown()
/// # }
/// ```
pub fn acquire_all(requests: impl IntoIterator<Item = AcquireRequest>) -> Result<Permits, Error> {
    let parts = requests.into_iter().map(|request| (request.inner, request.io_runtime));
    let (requests, io_runtimes): (Vec<_>, Vec<_>) = parts.unzip();
    let Some(io_runtime) = io_runtimes.first() else {
        return Ok(Permits(Vec::new()));
    };
    let permits = io_runtime.wait(crate::acquire_all(requests))??.into_vec();
    let of_threads = permits.into_iter().zip(io_runtimes);
    Ok(Permits(of_threads.map(|(inner, io_runtime)| Permit { inner, io_runtime }).collect()))
}

/// [`Permits`](crate::Permits) for threads. Dropping this value, on any thread, releases all
/// permits in the background.
#[must_use = "unused permits are released immediately"]
pub struct Permits(Vec<Permit>);

impl Permits {
    /// Returns the permits: see [`Permits::as_slice`](crate::Permits::as_slice).
    pub fn as_slice(&self) -> &[Permit] {
        &self.0
    }

    /// Waits until one of the permits is lost: see [`Permits::lost`](crate::Permits::lost). Nothing
    /// else ends the wait, so use a thread that has no other work.
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`] on a thread of an async runtime.
    pub fn lost(&self) -> Result<(), Error> {
        while !self.lost_timeout(Duration::MAX)? {}
        Ok(())
    }

    /// Waits until one of the permits is lost, or until `timeout` has passed. Returns whether a
    /// permit is lost.
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`] on a thread of an async runtime.
    pub fn lost_timeout(&self, timeout: Duration) -> Result<bool, Error> {
        let Some(first) = self.0.first() else {
            check_thread()?;
            thread::sleep(timeout);
            return Ok(false);
        };
        let permits = self.0.iter().map(|permit| &permit.inner);
        lost_within(&first.io_runtime, first_lost(permits), timeout)
    }

    /// Returns whether one of the permits is lost: see
    /// [`Permits::is_lost`](crate::Permits::is_lost).
    pub fn is_lost(&self) -> bool {
        self.0.iter().any(Permit::is_lost)
    }

    /// Releases all permits: see [`Permits::release`](crate::Permits::release).
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`] on a thread of an async runtime. The permits are released in the
    ///   background.
    /// - The errors of [`Permits::release`](crate::Permits::release).
    pub fn release(self) -> Result<(), Error> {
        let parts = self.0.into_iter().map(|permit| (permit.inner, permit.io_runtime));
        let (permits, io_runtimes): (Vec<_>, Vec<_>) = parts.unzip();
        let Some(io_runtime) = io_runtimes.first() else {
            return Ok(());
        };
        io_runtime.wait(crate::Permits::new(permits).release())?
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permits").field("count", &self.0.len()).finish_non_exhaustive()
    }
}
