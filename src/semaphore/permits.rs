//! Permits of several semaphores, as one value.

use std::fmt;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::error::Error;
use crate::runtime::at_poll;
use crate::semaphore::permit::Permit;

/// Permits of several semaphores. The permits are released together. Created by
/// [`acquire_all`](crate::acquire_all).
///
/// `Permits` is lost when one of the permits is lost. Dropping `Permits`
/// [drops](crate::Permit#dropping) each permit.
#[must_use = "unused permits are released immediately"]
pub struct Permits {
    permits: Vec<Permit>,
}

impl Permits {
    pub(crate) fn new(mut permits: Vec<Permit>) -> Self {
        for permit in &mut permits {
            permit.on_drop = Some(permit.core.settings.ending_on_drop());
        }
        Self { permits }
    }

    /// Returns the permits, in the order of the requests.
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

    /// Waits until one of the permits is lost: see [`Permit::lost`].
    ///
    /// # Cancel safety
    ///
    /// Safe: the call changes nothing.
    pub async fn lost(&self) {
        first_lost(self.permits.iter()).await;
    }

    /// Returns whether one of the permits is lost. A lost permit stays lost.
    pub fn is_lost(&self) -> bool {
        self.permits.iter().any(Permit::is_lost)
    }

    /// Releases all permits at the same time, and waits for Redis to confirm.
    ///
    /// # Errors
    ///
    /// - [`Error::Lost`] if one of the permits was lost.
    /// - The first error of [`Permit::release`] if no permit was lost. The other permits are still
    ///   released.
    ///
    /// # Cancel safety
    ///
    /// Safe: once the method is called, the permits are released, if necessary in the background.
    pub fn release(self) -> impl Future<Output = Result<(), Error>> {
        // Releases are started even if the future is never polled.
        let releases: Vec<_> = self.permits.into_iter().map(Permit::release).collect();
        async move {
            let errors = join_all(releases).await.into_iter().filter_map(Result::err);
            // Prefers a loss to other errors: `min_by_key` returns the first error with the
            // smallest key.
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

/// Waits until one of the permits is lost.
pub(crate) async fn first_lost<'a>(permits: impl Iterator<Item = &'a Permit>) {
    let permits: Vec<_> = permits.collect();
    let losses = permits.iter().map(|permit| permit.lost());
    let mut losses = losses.collect::<FuturesUnordered<_>>();
    tokio::select! {
        biased;
        // If this process was frozen, the timers are late.
        () = at_poll(|| permits.iter().any(|permit| permit.is_lost())) => {}
        Some(()) = losses.next() => {}
    }
}
