//! The tower layer, and its settings.

use std::collections::HashMap;
use std::fmt;
use std::mem::{self, Discriminant};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore as Places;

use crate::error::Error;
use crate::lock::Lock;
use crate::semaphore::Semaphore;

/// A layer that limits how many requests a service handles at the same time: see the
/// [module](super).
#[derive(Clone)]
pub struct SemaphoreLayer {
    pub(super) semaphore: Semaphore,
    /// Limits the number of requests that wait at the same time.
    pub(super) places: Arc<Places>,
    retry_after: Duration,
    /// The number of the last outage that was logged.
    last_outage: Arc<AtomicU64>,
    /// When each kind of error that is no outage was last logged.
    last_errors: Arc<Lock<HashMap<Discriminant<Error>, Instant>>>,
}

/// The default for the maximum number of requests of a process that may wait at the same time.
const MAX_WAITING: usize = 1000;
const LOG_INTERVAL: Duration = Duration::from_secs(60);

impl SemaphoreLayer {
    /// Creates a layer with default settings: at most 1,000 requests wait at the same time. Each
    /// request waits for at most the semaphore's acquire timeout. Without an acquire timeout, a
    /// request waits until its client disconnects. While Redis is unavailable, a request waits for
    /// at most the outage tolerance.
    pub fn new(semaphore: Semaphore) -> Self {
        let places = Arc::new(Places::new(MAX_WAITING));
        let (last_outage, last_errors) = (Arc::default(), Arc::default());
        Self { semaphore, places, retry_after: Duration::from_secs(1), last_outage, last_errors }
    }

    /// Sets the maximum number of requests of this process that may wait at the same time. All
    /// services that use this layer or a clone of it share the maximum. Default: 1,000. If the
    /// maximum is reached, a request that cannot get a permit immediately is shed. With a maximum
    /// of 0, no request waits.
    #[must_use]
    pub fn max_waiting(self, requests: usize) -> Self {
        Self { places: Arc::new(Places::new(requests.min(Places::MAX_PERMITS))), ..self }
    }

    /// Sets the `Retry-After` header for shed requests. The duration is rounded up to whole
    /// seconds. Default: 1 s.
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

    /// Returns whether an outage is the reason to shed a request. Logs each outage once.
    pub(super) fn is_outage(&self) -> bool {
        let Some(outage) = self.semaphore.outage() else { return false };
        if self.last_outage.swap(outage.number, Ordering::Relaxed) != outage.number {
            let (semaphore, error) = (self.semaphore.name(), outage.reason);
            tracing::warn!(semaphore, error, "a request is shed");
        }
        true
    }

    /// Logs the error that is the reason to shed a request. Logs each kind of error at most once a
    /// minute, because many requests may fail for the same reason.
    pub(super) fn log_sometimes(&self, error: &Error) {
        let mut last = self.last_errors.lock();
        let kind = mem::discriminant(error);
        if last.get(&kind).is_none_or(|last| last.elapsed() >= LOG_INTERVAL) {
            last.insert(kind, Instant::now());
            tracing::warn!(semaphore = self.semaphore.name(), %error, "a request is shed");
        }
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
