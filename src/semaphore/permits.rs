//! Permits of several semaphores, as one.

use std::fmt;
use std::future::pending;

use futures_util::future::{join_all, select_all};

use crate::error::Error;
use crate::semaphore::on_drop::OnDrop;
use crate::semaphore::permit::Permit;

/// Permits of several semaphores, which end together. From [`acquire_all`](crate::acquire_all).
///
/// It is lost when one of them is lost. Dropping it drops all of them: they are given back in the
/// background.
///
/// # Examples
///
/// See [`acquire_all`](crate::acquire_all).
#[must_use = "permits that are dropped at once are given back at once"]
pub struct Permits {
    permits: Vec<Permit>,
}

impl Permits {
    pub(crate) fn new(mut permits: Vec<Permit>) -> Self {
        for permit in &mut permits {
            permit.on_drop = Some(OnDrop::of(&permit.core.settings));
        }
        Self { permits }
    }

    /// Each of them, in the order of the requests: for its fencing token, say.
    ///
    /// # Examples
    ///
    /// ```
    /// # use redis_semaphore::{Error, SemaphoreClient, acquire_all};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
    /// # let names = [(); 2].map(|()| uuid::Uuid::new_v4().to_string());
    /// # let [rows, files] = names.map(|name| client.semaphore(name).limit(1).build().unwrap());
    /// let permits = acquire_all([rows.request(), files.request()]).await?;
    /// if let [row, file] = permits.as_slice() {
    ///     println!("written with {} and {}", row.fencing_token(), file.fencing_token());
    /// }
    /// assert!(!permits.is_lost());
    /// permits.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn as_slice(&self) -> &[Permit] {
        &self.permits
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn into_vec(self) -> Vec<Permit> {
        self.permits
    }

    /// Waits until one of them is lost: see [`Permit::lost`].
    ///
    /// # Cancel safety
    ///
    /// Safe: it only watches.
    ///
    /// # Examples
    ///
    /// See [`acquire_all`](crate::acquire_all).
    pub async fn lost(&self) {
        first_lost(self.permits.iter()).await;
    }

    /// Whether one of them is lost. Once it is, it stays so.
    ///
    /// # Examples
    ///
    /// See [`as_slice`](Self::as_slice).
    pub fn is_lost(&self) -> bool {
        self.permits.iter().any(Permit::is_lost)
    }

    /// Gives all of them back now, at the same time, and waits until Redis has them.
    ///
    /// # Errors
    ///
    /// As for [`Permit::release`]: [`Error::Lost`] when one of them was lost, otherwise the first
    /// error. The others are given back all the same.
    ///
    /// # Cancel safety
    ///
    /// Safe: once called, they are given back, in the background if need be.
    ///
    /// # Examples
    ///
    /// See [`acquire_all`](crate::acquire_all).
    pub fn release(self) -> impl Future<Output = Result<(), Error>> {
        // Also where the future is never polled.
        let releases: Vec<_> = self.permits.into_iter().map(Permit::release).collect();
        async move {
            let errors = join_all(releases).await.into_iter().filter_map(Result::err);
            // A loss first: `min_by_key` answers the first one of the least.
            let error = errors.min_by_key(|error| !matches!(error, Error::Lost { .. }));
            error.map_or(Ok(()), Err)
        }
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permits").field("count", &self.permits.len()).finish_non_exhaustive()
    }
}

/// The first that is lost.
pub(crate) async fn first_lost<'a>(permits: impl Iterator<Item = &'a Permit>) -> &'a Permit {
    let lost = permits.map(|permit| {
        Box::pin(async move {
            permit.lost().await;
            permit
        })
    });
    let lost: Vec<_> = lost.collect();
    if lost.is_empty() {
        return pending().await;
    }
    select_all(lost).await.0
}
