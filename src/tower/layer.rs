//! What is asked of the layer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;

use super::Limited;
use crate::semaphore::Semaphore;

/// Limits how many requests are inside of a service at once: see the [module](super).
///
/// # Examples
///
/// See the [module](super).
#[derive(Clone)]
pub struct SemaphoreLayer {
    semaphore: Semaphore,
    /// None: whoever gets no permit at once goes without.
    waiting: Option<Arc<tokio::sync::Semaphore>>,
    retry_after: Duration,
}

/// How many requests of a process wait at most, unless told otherwise.
const MAX_WAITING: usize = 1000;

impl SemaphoreLayer {
    /// Requests wait for a permit, for as long as the semaphore's acquire timeout says (without
    /// one: for as long as their clients do); 1,000 of this process at once.
    ///
    /// # Examples
    ///
    /// See the [module](super).
    pub fn new(semaphore: Semaphore) -> Self {
        let waiting = Some(Arc::new(tokio::sync::Semaphore::new(MAX_WAITING)));
        Self { semaphore, waiting, retry_after: Duration::from_secs(1) }
    }

    /// How many requests of this process may wait at once, at all services that this layer or a
    /// clone of it is put around. What comes beyond that is shed. Default: 1,000.
    ///
    /// # Examples
    ///
    /// See the [module](super).
    #[must_use]
    pub fn max_waiting(self, requests: usize) -> Self {
        let requests = requests.min(tokio::sync::Semaphore::MAX_PERMITS);
        Self { waiting: Some(Arc::new(tokio::sync::Semaphore::new(requests))), ..self }
    }

    /// Nobody waits: a request that finds no room, or a queue, is shed at once.
    ///
    /// # Examples
    ///
    /// ```
    /// # use redis_semaphore::{Error, Semaphores};
    /// # use redis_semaphore::tower::SemaphoreLayer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let semaphores = Semaphores::connect(&std::env::var("REDIS_URL").unwrap()).await?;
    /// let searches = semaphores.semaphore("searches").limit(50).build()?;
    /// let layer = SemaphoreLayer::new(searches).shed();
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn shed(self) -> Self {
        Self { waiting: None, ..self }
    }

    /// When a client that was shed may come again: `Retry-After`, in whole seconds, rounded up.
    /// Default: 1 second.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use redis_semaphore::{Error, Semaphores};
    /// # use redis_semaphore::tower::SemaphoreLayer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let semaphores = Semaphores::connect(&std::env::var("REDIS_URL").unwrap()).await?;
    /// let exports = semaphores.semaphore("exports").limit(2).build()?;
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

    pub(super) fn waiting(&self) -> Option<&tokio::sync::Semaphore> {
        self.waiting.as_deref()
    }

    pub(super) fn retry_after_seconds(&self) -> u64 {
        self.retry_after.as_secs() + u64::from(self.retry_after.subsec_nanos() > 0)
    }
}

impl<S> Layer<S> for SemaphoreLayer {
    type Service = Limited<S>;

    fn layer(&self, inner: S) -> Limited<S> {
        Limited::new(inner, self.clone())
    }
}

impl fmt::Debug for SemaphoreLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SemaphoreLayer")
            .field("semaphore", &self.semaphore.name())
            .finish_non_exhaustive()
    }
}
