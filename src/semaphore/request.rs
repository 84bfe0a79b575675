//! A request for a permit, with its own settings.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::semaphore::core::{Core, Wanted};
use crate::semaphore::{Group, Permit};

const LONGEST_HEAD_START: Duration = Duration::from_secs(60 * 60);

/// A request for a permit with its own weight, head start and timeout. Created by
/// [`Semaphore::request`](crate::Semaphore::request).
///
/// Nothing is sent before [`acquire`](Self::acquire) or [`try_acquire`](Self::try_acquire). The
/// futures of these methods borrow nothing, so they can be spawned.
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
    head_start: Duration,
    group: Option<Group>,
    pub(crate) timeout: Option<Duration>,
}

impl AcquireRequest {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        let (weight, head_start, timeout) = (1, Duration::ZERO, core.settings.acquire_timeout);
        Self { core: core.clone(), weight, head_start, group: None, timeout }
    }

    /// Sets the weight: how much of the limit the permit takes. Default: 1; range: 1 to the limit.
    /// If the weight exceeds a runtime limit, the request waits until that limit is raised or
    /// cleared.
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// Sets the head start: [`acquire`](Self::acquire) queues the request as if it had arrived that
    /// much earlier. Default: none; range: 0 to 1 hour, rounded down to whole ms. `try_acquire`
    /// never queues, and ignores the head start.
    ///
    /// A head start is a bounded priority, so it cannot delay other requests forever. A request
    /// with a head start of 5 s overtakes only requests that arrived less than 5 s before it. If
    /// the server's clock was set back by up to a second, the bound is longer by that time. While
    /// the clock is more than a second behind the last ticket, head starts have no effect. Requests
    /// that arrive while the clock is behind the last ticket keep their order. But their tickets
    /// are so close together that a later request with a head start may overtake all of them.
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
    /// // A user waits for this preview: its request overtakes the requests of the last minute.
    /// let preview = renders.request().head_start(Duration::from_secs(60)).acquire().await?;
    /// # preview.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn head_start(mut self, head_start: Duration) -> Self {
        self.head_start = head_start;
        self
    }

    /// Sets the group: see [`Group`]. Default: no group. A head start moves the request forward only
    /// within its group.
    pub fn group(mut self, group: impl Into<Group>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Sets how long [`acquire`](Self::acquire) waits before it returns [`Error::Timeout`].
    /// Default: the [acquire timeout](crate::SemaphoreBuilder::acquire_timeout) of the semaphore.
    /// `try_acquire` never waits, and ignores the timeout.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Removes the timeout: [`acquire`](Self::acquire) waits without a time limit, even if the
    /// semaphore has an acquire timeout.
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

    /// Checks everything that can be checked without a call to Redis.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.wanted()?;
        self.core.check(self.weight)
    }

    fn wanted(&self) -> Result<Wanted, Error> {
        if self.head_start > LONGEST_HEAD_START {
            let reason = format!("must be 0 to 1 hour, not {:?}", self.head_start);
            return Err(Error::invalid("head_start", reason));
        }
        let part = |group: &Group| group.part(self.weight, self.core.settings.group_defaults);
        let group = self.group.as_ref().map(part).transpose()?.unwrap_or_default();
        Ok(Wanted { weight: self.weight, head_start: self.head_start.as_millis() as u32, group })
    }

    /// Waits in the queue for the permit, and returns it.
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`] if the weight is 0, the head start exceeds 1 hour, or the group is
    ///   invalid.
    /// - The errors of [`Semaphore::acquire`](crate::Semaphore::acquire).
    ///
    /// # Cancel safety
    ///
    /// See [`Semaphore::acquire`](crate::Semaphore::acquire).
    pub async fn acquire(self) -> Result<Permit, Error> {
        pin!(self.core.acquire_within(self.wanted()?, self.timeout)).await
    }

    /// Returns the permit if it fits now and no request waits, and `None` otherwise. Never queues.
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`] if the weight is 0, the head start exceeds 1 hour, or the group is
    ///   invalid.
    /// - The errors of [`Semaphore::try_acquire`](crate::Semaphore::try_acquire).
    ///
    /// # Cancel safety
    ///
    /// See [`Semaphore::try_acquire`](crate::Semaphore::try_acquire).
    pub async fn try_acquire(self) -> Result<Option<Permit>, Error> {
        pin!(self.core.try_acquire(self.wanted()?, None)).await
    }

    /// Like [`try_acquire`](Self::try_acquire), but waits for the reply no longer than the timeout,
    /// unless the timeout is zero.
    #[cfg(feature = "tower")]
    pub(crate) async fn try_acquire_in_time(self) -> Result<Option<Permit>, Error> {
        let patience = self.timeout.filter(|timeout| !timeout.is_zero());
        pin!(self.core.try_acquire(self.wanted()?, patience)).await
    }
}

impl fmt::Debug for AcquireRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireRequest")
            .field("semaphore", &self.core.name)
            .field("weight", &self.weight)
            .field("head_start", &self.head_start)
            .field("group", &self.group)
            .field("timeout", &self.timeout)
            .finish()
    }
}
