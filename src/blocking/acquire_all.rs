//! Permits of several semaphores at once, for threads.

use std::fmt;

use super::{AcquireRequest, Permit};
use crate::error::Error;

/// As [`acquire_all`](crate::acquire_all()), for threads.
///
/// # Errors
///
/// As there, and [`Error::Invalid`] on a thread of an async runtime.
///
/// # Examples
///
/// ```
/// use redis_semaphore::blocking::acquire_all;
/// # use redis_semaphore::blocking::Semaphores;
/// # fn main() -> Result<(), redis_semaphore::Error> {
/// # let semaphores = Semaphores::connect(&std::env::var("REDIS_URL").unwrap())?;
/// # let names = [(); 2].map(|()| uuid::Uuid::new_v4().to_string());
/// # let [rows, files] = names.map(|name| semaphores.semaphore(name).limit(1).build().unwrap());
/// let permits = acquire_all([rows.request(), files.request()])?;
/// if let [row, file] = permits.as_slice() {
///     println!("written with {} and {}", row.fencing_token(), file.fencing_token());
/// }
/// permits.release()?;
/// # semaphores.shutdown()
/// # }
/// ```
pub fn acquire_all(requests: impl IntoIterator<Item = AcquireRequest>) -> Result<Permits, Error> {
    let parts = requests.into_iter().map(AcquireRequest::split);
    let (requests, homes): (Vec<_>, Vec<_>) = parts.unzip();
    let Some(home) = homes.first() else {
        return Ok(Permits(Vec::new()));
    };
    let permits = home.wait(crate::acquire_all(requests))??.into_vec();
    let of_threads = permits.into_iter().zip(homes);
    Ok(Permits(of_threads.map(|(permit, home)| Permit::new(permit, home)).collect()))
}

/// As [`Permits`](crate::Permits), for threads. Dropped, on whatever thread, all of them are given
/// back in the background.
///
/// # Examples
///
/// See [`acquire_all`].
#[must_use = "permits that are dropped at once are given back at once"]
pub struct Permits(Vec<Permit>);

impl Permits {
    /// As [`Permits::as_slice`](crate::Permits::as_slice).
    pub fn as_slice(&self) -> &[Permit] {
        &self.0
    }

    /// As [`Permits::is_lost`](crate::Permits::is_lost).
    pub fn is_lost(&self) -> bool {
        self.0.iter().any(Permit::is_lost)
    }

    /// As [`Permits::release`](crate::Permits::release).
    ///
    /// # Errors
    ///
    /// As there. On a thread of an async runtime [`Error::Invalid`]: then they are given back in
    /// the background.
    pub fn release(self) -> Result<(), Error> {
        let (permits, homes): (Vec<_>, Vec<_>) = self.0.into_iter().map(Permit::split).unzip();
        let Some(home) = homes.first() else {
            return Ok(());
        };
        home.wait(crate::Permits::new(permits).release())?
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permits").field("count", &self.0.len()).finish_non_exhaustive()
    }
}
