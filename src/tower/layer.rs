//! What is asked of the layer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore as Places, SemaphorePermit as Place};

use crate::semaphore::Semaphore;

/// Limits how many requests are inside of a service at once: see the [module](super).
///
/// # Examples
///
/// See the [module](super).
#[derive(Clone)]
pub struct SemaphoreLayer {
    semaphore: Semaphore,
    /// For those who wait.
    places: Arc<Places>,
    retry_after: Duration,
    /// The number of the last outage that was logged.
    last_outage: Arc<AtomicU64>,
}

/// How many requests of a process wait at most by default.
const MAX_WAITING: usize = 1000;

impl SemaphoreLayer {
    /// Requests wait for a permit, for as long as the semaphore's acquire timeout says (without
    /// one: for as long as their clients do, but no longer than the outage tolerance while Redis is
    /// away); 1,000 at once.
    ///
    /// # Examples
    ///
    /// See the [module](super).
    pub fn new(semaphore: Semaphore) -> Self {
        let places = Arc::new(Places::new(MAX_WAITING));
        let last_outage = Arc::default();
        Self { semaphore, places, retry_after: Duration::from_secs(1), last_outage }
    }

    /// How many requests may wait at once, at all services that this layer or a clone of it is put
    /// around, in this process. Beyond that a request that finds no permit free, or a queue, is
    /// shed. Default: 1,000. With 0 nobody waits.
    ///
    /// # Examples
    ///
    /// See the [module](super).
    #[must_use]
    pub fn max_waiting(self, requests: usize) -> Self {
        Self { places: Arc::new(Places::new(requests.min(Places::MAX_PERMITS))), ..self }
    }

    /// When a client that was shed may come again: `Retry-After`, in whole seconds, rounded up.
    /// Default: 1 second.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # use redis_semaphore::tower::SemaphoreLayer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
    /// let exports = client.semaphore("exports").limit(2).build()?;
    /// let layer = SemaphoreLayer::new(exports).retry_after(Duration::from_secs(30));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn retry_after(self, pause: Duration) -> Self {
        Self { retry_after: pause, ..self }
    }

    pub(super) fn semaphore(&self) -> &Semaphore {
        &self.semaphore
    }

    pub(super) fn place_to_wait(&self) -> Option<Place<'_>> {
        self.places.try_acquire().ok()
    }

    /// Whether a request is shed because of an outage, which is logged for its first request.
    pub(super) fn is_outage(&self) -> bool {
        let Some(outage) = self.semaphore.outage() else { return false };
        if self.last_outage.swap(outage.number, Ordering::Relaxed) != outage.number {
            let (semaphore, error) = (self.semaphore.name(), outage.reason);
            tracing::warn!(semaphore, error, "a request is shed");
        }
        true
    }

    pub(super) fn retry_after_seconds(&self) -> u64 {
        let begun = u64::from(self.retry_after.subsec_nanos() > 0);
        self.retry_after.as_secs().saturating_add(begun)
    }
}

impl fmt::Debug for SemaphoreLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SemaphoreLayer")
            .field("semaphore", &self.semaphore.name())
            .finish_non_exhaustive()
    }
}
