//! One acquire with settings of its own.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::semaphore::Permit;
use crate::semaphore::core::Core;

const LONGEST_HEAD_START: Duration = Duration::from_secs(60 * 60);

/// What is asked of a semaphore: a weight, a head start, and how long to wait. From
/// [`Semaphore::request`](crate::Semaphore::request).
///
/// Nothing is sent before [`acquire`](Self::acquire) or [`try_acquire`](Self::try_acquire). Their
/// futures borrow nothing, so they can be spawned.
///
/// # Examples
///
/// ```
/// # use std::time::Duration;
/// # use redis_semaphore::{Error, SemaphoreClient};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
/// # let name = uuid::Uuid::new_v4().to_string();
/// let semaphore = client.semaphore(name).limit(16).build()?;
/// let heavy = semaphore.request().weight(12).timeout(Duration::from_secs(5)).acquire().await?;
/// assert_eq!(heavy.weight(), 12);
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
    pub(super) core: Arc<Core>,
    weight: u32,
    ahead: Duration,
    pub(crate) timeout: Option<Duration>,
}

impl AcquireRequest {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        let (weight, ahead, timeout) = (1, Duration::ZERO, core.settings.acquire_timeout);
        Self { core: core.clone(), weight, ahead, timeout }
    }

    /// How much of the limit the permit takes: from 1 to the limit. Default: 1. What weighs more
    /// than a limit that was set at run time waits until that is raised or cleared.
    ///
    /// # Examples
    ///
    /// See [`AcquireRequest`].
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// A head start of 0 to 1 hour, in whole ms: [`acquire`](Self::acquire) queues as if it had
    /// come that much earlier. Default: none. A try never waits and does not look at it.
    ///
    /// It is a priority with a bound: nobody is overtaken for longer than that much, so nobody
    /// waits for ever. After the server's clock was set back it is up to a second more: while that
    /// is more than a second behind the last ticket, a head start counts for nothing; then it
    /// counts from that ticket, and all who came while the clock was behind count as having come
    /// together.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
    /// # let name = uuid::Uuid::new_v4().to_string();
    /// let renders = client.semaphore(name).limit(4).build()?;
    /// // Somebody looks at this one: it goes ahead of what came in the last minute.
    /// let preview = renders.request().ahead(Duration::from_secs(60)).acquire().await?;
    /// # preview.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn ahead(mut self, head_start: Duration) -> Self {
        self.ahead = head_start;
        self
    }

    /// How long [`acquire`](Self::acquire) waits before it answers [`Error::Timeout`]: as the
    /// semaphore was [built](crate::SemaphoreBuilder::acquire_timeout) unless set. A try never
    /// waits and does not look at it.
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
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
    /// # let name = uuid::Uuid::new_v4().to_string();
    /// let hasty = Duration::from_secs(1);
    /// let semaphore = client.semaphore(name).limit(1).acquire_timeout(hasty).build()?;
    /// let permit = semaphore.request().without_timeout().acquire().await?;
    /// # permit.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn without_timeout(mut self) -> Self {
        self.timeout = None;
        self
    }

    /// What can be seen before anything is asked for.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.check_ahead()?;
        self.core.check(self.weight)
    }

    fn check_ahead(&self) -> Result<(), Error> {
        if self.ahead > LONGEST_HEAD_START {
            let reason = format!("must be 0 to 1 hour, not {:?}", self.ahead);
            return Err(Error::invalid("ahead", reason));
        }
        Ok(())
    }

    /// Waits in the queue for the permit.
    ///
    /// # Errors
    ///
    /// As for [`Semaphore::acquire`](crate::Semaphore::acquire), and [`Error::Invalid`] for a
    /// weight of 0, or a head start of more than an hour.
    ///
    /// # Cancel safety
    ///
    /// As for [`Semaphore::acquire`](crate::Semaphore::acquire).
    ///
    /// # Examples
    ///
    /// See [`AcquireRequest`].
    pub async fn acquire(self) -> Result<Permit, Error> {
        self.check_ahead()?;
        let ahead = self.ahead.as_millis() as u32;
        pin!(self.core.acquire_within(self.weight, ahead, self.timeout)).await
    }

    /// Takes the permit if it fits now and nobody waits. Never queues.
    ///
    /// # Errors
    ///
    /// As for [`Semaphore::try_acquire`](crate::Semaphore::try_acquire), and [`Error::Invalid`] for
    /// a weight of 0.
    ///
    /// # Cancel safety
    ///
    /// As for [`Semaphore::try_acquire`](crate::Semaphore::try_acquire).
    ///
    /// # Examples
    ///
    /// See [`AcquireRequest`].
    pub async fn try_acquire(self) -> Result<Option<Permit>, Error> {
        pin!(self.core.try_acquire(self.weight)).await
    }
}

impl fmt::Debug for AcquireRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireRequest")
            .field("semaphore", &self.core.name)
            .field("weight", &self.weight)
            .field("ahead", &self.ahead)
            .field("timeout", &self.timeout)
            .finish()
    }
}
