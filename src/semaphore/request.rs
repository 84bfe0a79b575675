use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::gate::Gate;
use crate::{Error, Permit};

/// What is asked of a semaphore: a weight, and how long to wait. From
/// [`Semaphore::request`](crate::Semaphore::request).
///
/// Nothing is sent before [`acquire`](Self::acquire) or [`try_acquire`](Self::try_acquire). Their
/// futures borrow nothing, so they can be spawned.
///
/// # Examples
///
/// ```
/// # use std::time::Duration;
/// # use redis_semaphore::{Error, Semaphores};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # let semaphores = Semaphores::connect(&std::env::var("REDIS_URL").unwrap()).await?;
/// # let name = uuid::Uuid::new_v4().to_string();
/// let semaphore = semaphores.semaphore(name).limit(16).build()?;
/// let heavy = semaphore.request().weight(12).timeout(Duration::from_secs(5)).acquire().await?;
/// assert_eq!(heavy.num_permits(), 12);
/// assert!(semaphore.request().weight(8).try_acquire().await?.is_none());
///
/// let later = tokio::spawn(semaphore.request().weight(8).acquire());
/// heavy.release().await?;
/// later.await.expect("it does not panic")?.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "acquire() or try_acquire() sends it"]
pub struct AcquireRequest {
    gate: Arc<Gate>,
    weight: u32,
    timeout: Option<Duration>,
}

impl AcquireRequest {
    pub(crate) fn new(gate: &Arc<Gate>) -> Self {
        Self { gate: gate.clone(), weight: 1, timeout: gate.settings.acquire_timeout }
    }

    /// How much of the limit the permit takes: from 1 to the limit. 1 unless set.
    ///
    /// # Examples
    ///
    /// See [`AcquireRequest`].
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// How long [`acquire`](Self::acquire) waits before it answers [`Error::Timeout`]: as the
    /// semaphore was [built](crate::SemaphoreBuilder::acquire_timeout) unless set. A try never waits
    /// and does not look at it.
    ///
    /// # Examples
    ///
    /// See [`AcquireRequest`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Waits without end, whatever acquire timeout the semaphore was built with.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use redis_semaphore::{Error, Semaphores};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let semaphores = Semaphores::connect(&std::env::var("REDIS_URL").unwrap()).await?;
    /// # let name = uuid::Uuid::new_v4().to_string();
    /// let hasty = Duration::from_secs(1);
    /// let semaphore = semaphores.semaphore(name).limit(1).acquire_timeout(hasty).build()?;
    /// let permit = semaphore.request().without_timeout().acquire().await?;
    /// # permit.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn without_timeout(mut self) -> Self {
        self.timeout = None;
        self
    }

    /// Waits in the queue for the permit.
    ///
    /// # Errors
    ///
    /// As for [`Semaphore::acquire`](crate::Semaphore::acquire), and [`Error::Invalid`] for a weight
    /// of 0.
    ///
    /// # Cancel safety
    ///
    /// As for [`Semaphore::acquire`](crate::Semaphore::acquire).
    ///
    /// # Examples
    ///
    /// See [`AcquireRequest`].
    pub async fn acquire(self) -> Result<Permit, Error> {
        pin!(self.gate.acquire_within(self.weight, self.timeout)).await
    }

    /// Takes the permit if it fits now and nobody waits. Never queues.
    ///
    /// # Errors
    ///
    /// As for [`Semaphore::try_acquire`](crate::Semaphore::try_acquire), and [`Error::Invalid`] for a
    /// weight of 0.
    ///
    /// # Cancel safety
    ///
    /// As for [`Semaphore::try_acquire`](crate::Semaphore::try_acquire).
    ///
    /// # Examples
    ///
    /// See [`AcquireRequest`].
    pub async fn try_acquire(self) -> Result<Option<Permit>, Error> {
        pin!(self.gate.try_acquire(self.weight)).await
    }
}

impl fmt::Debug for AcquireRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireRequest")
            .field("semaphore", &self.gate.name)
            .field("weight", &self.weight)
            .field("timeout", &self.timeout)
            .finish()
    }
}
