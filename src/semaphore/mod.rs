//! A semaphore, from its permits down to the calls that they take.

// Layers, the lowest first; the other files are above them, in no order:
// closing, settings, term, lease, acquisition, core, maintenance
mod acquire;
mod acquire_all;
mod acquisition;
mod adopt;
mod builder;
mod closing;
mod core;
mod detached_permit;
mod inspect;
mod lease;
mod let_expire;
mod limit;
mod maintenance;
mod on_drop;
mod permit;
mod permit_watch;
mod permits;
mod request;
mod revoke;
mod settings;
mod term;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::semaphore::core::Core;
pub use acquire_all::acquire_all;
pub use builder::SemaphoreBuilder;
pub use detached_permit::DetachedPermit;
pub use permit::Permit;
pub use permit_watch::PermitWatch;
pub use permits::Permits;
#[cfg(feature = "blocking")]
pub(crate) use permits::first_lost;
pub use request::AcquireRequest;
pub use revoke::Revoked;

/// A counting semaphore that many processes and machines share.
///
/// It is built once for a process and cloned for each task, which is cheap: clones share the calls
/// that they make. One that is built anew for each request works as well, but shares nothing. It is
/// `Send`, `Sync` and `'static`, and so are its permits and the futures of
/// [`request`](Self::request): they can be sent to tasks and kept in structs.
///
/// It is fair: whoever asked first is served first, over all processes, and nobody overtakes, not
/// even a lighter request that would fit or a try. Only a [head start](AcquireRequest::head_start) goes
/// ahead of others, and of those only who came within it.
///
/// A program's own calls take effect in the order in which the program makes them, as those of
/// tokio's semaphore do. A permit that was dropped is free for the next call, and a wait that was
/// canceled is out of its way. This holds within one [`SemaphoreClient`](crate::SemaphoreClient),
/// for semaphores of one name, and for calls that the program itself orders: in one task, or in
/// tasks and threads that synchronize. It takes no round trip: what was given up goes out just
/// before the next call, over the same connection.
///
/// # Examples
///
/// ```
/// use redis_semaphore::{Error, SemaphoreClient};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
/// let semaphore = client.semaphore("database-connections").limit(3).build()?;
///
/// let permit = semaphore.acquire().await?;
/// // At most three processes, wherever they run, are here at the same time.
/// permit.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Semaphore {
    core: Arc<Core>,
}

impl Semaphore {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// The outage of its server that is logged, while it lasts.
    #[cfg(feature = "tower")]
    pub(crate) fn outage(&self) -> Option<crate::server::Outage> {
        self.core.context.servers.outage(self.core.slot)
    }

    /// The name, without the prefix.
    ///
    /// # Examples
    ///
    /// ```
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
    /// let semaphore = client.semaphore("uploads").limit(10).build()?;
    /// assert_eq!(semaphore.name(), "uploads");
    /// # Ok(())
    /// # }
    /// ```
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// A request of your own: of another weight, with a head start, with a timeout. Of weight 1,
    /// without a head start, and with the acquire timeout that the semaphore was built with, unless
    /// said otherwise.
    ///
    /// # Examples
    ///
    /// See [`AcquireRequest`].
    pub fn request(&self) -> AcquireRequest {
        AcquireRequest::new(&self.core)
    }

    /// Waits in the queue for one permit.
    ///
    /// Queueing takes one call. After that little is sent until the permit is handed over: a
    /// heartbeat every third of the heartbeat timeout (one call for a thousand waits at this
    /// semaphore), and from near the head of the queue a call when a lease ends.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] when an acquire timeout is set and passes, [`Error::Unavailable`] when
    /// Redis gives no answer for longer than the outage tolerance, [`Error::TooHeavy`] when the
    /// request can never fit, [`Error::NoLimit`] or [`Error::NotAcknowledged`] where the semaphore
    /// was built for that, [`Error::LeaseTooShort`] when permits were granted, but never in time
    /// for their lease; [`Error::Rejected`], [`Error::Closed`], [`Error::Shutdown`].
    ///
    /// # Cancel safety
    ///
    /// Safe: a wait that is dropped at any point leaves the queue, or gives back the permit that it
    /// may have been granted, in the background. Its place is lost.
    ///
    /// # Keep polling it
    ///
    /// A future that was polled once is in the queue, or on its way there. If it is then kept and
    /// not polled, it still takes its turn, and its permit stays unused for a lease each time. This
    /// happens to a pinned future outside of a `select!` that is left, and to futures in a stream
    /// such as `buffer_unordered` while the consumer of that stream awaits a permit of the same
    /// semaphore: nothing moves for a lease then. Drop such a future, or run it in a task. (tokio's
    /// semaphore has the same trap, without an end.)
    ///
    /// # Examples
    ///
    /// See [`Semaphore`].
    pub async fn acquire(&self) -> Result<Permit, Error> {
        pin!(self.core.acquire_within(1, 0, self.core.settings.acquire_timeout)).await
    }

    /// Waits in the queue for a permit of this weight, from 1 to the limit. What weighs more than a
    /// limit that was set at run time waits until that is raised or cleared. For a timeout, see
    /// [`request`](Self::request).
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Self::acquire), and [`Error::Invalid`] for a weight of 0.
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Self::acquire).
    ///
    /// # Examples
    ///
    /// See [`Inspection`](crate::Inspection).
    pub async fn acquire_many(&self, n: u32) -> Result<Permit, Error> {
        pin!(self.core.acquire_within(n, 0, self.core.settings.acquire_timeout)).await
    }

    /// Waits in the queue for one permit, but no longer than `timeout`, whatever acquire timeout
    /// the semaphore was built with. [`request`](Self::request) has timeouts for other weights.
    ///
    /// With a timeout of zero it does not wait: it takes a permit if one is free, as
    /// [`try_acquire`](Self::try_acquire) does. Any other timeout includes the time for the round
    /// trip to Redis.
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Self::acquire); [`Error::Timeout`] tells how long the wait took and the
    /// last position in the queue.
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Self::acquire).
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
    /// # let semaphore = client.semaphore(name).limit(1).build()?;
    /// let permit = semaphore.acquire().await?;
    /// let refused = semaphore.acquire_timeout(Duration::from_millis(50)).await;
    /// assert!(matches!(refused, Err(Error::Timeout { position: Some(1), .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire_timeout(&self, timeout: Duration) -> Result<Permit, Error> {
        pin!(self.core.acquire_within(1, 0, Some(timeout))).await
    }

    /// Takes one permit if there is one now and nobody waits. Never queues.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] when Redis gives no answer within twice the response timeout; the
    /// others of [`acquire`](Self::acquire) but [`Error::Timeout`].
    ///
    /// # Cancel safety
    ///
    /// Safe: a permit that may have been granted is given back in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
    /// # let name = uuid::Uuid::new_v4().to_string();
    /// # let semaphore = client.semaphore(name).limit(1).build()?;
    /// let permit = semaphore.try_acquire().await?;
    /// assert!(permit.is_some());
    /// assert!(semaphore.try_acquire().await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<Permit>, Error> {
        pin!(self.core.try_acquire(1)).await
    }

    /// Takes a permit of this weight, from 1 to the limit, if it fits now and nobody waits.
    ///
    /// # Errors
    ///
    /// As for [`try_acquire`](Self::try_acquire), and [`Error::Invalid`] for a weight of 0.
    ///
    /// # Cancel safety
    ///
    /// As for [`try_acquire`](Self::try_acquire).
    ///
    /// # Examples
    ///
    /// See [`try_acquire`](Self::try_acquire).
    pub async fn try_acquire_many(&self, n: u32) -> Result<Option<Permit>, Error> {
        pin!(self.core.try_acquire(n)).await
    }

    /// Ends acquiring by this semaphore and all its clones, as tokio's `close` does: waits, tries
    /// under way, and all that come later fail with [`Error::Closed`] at once. What waited leaves
    /// the queue, and what may have been granted is given back, in the background.
    ///
    /// Permits that are held stay so, are renewed, and can be released. Others are not touched:
    /// other processes go on, and so does a semaphore of the same name that was built by itself. To
    /// keep everybody out, [`set_limit(0)`](Self::set_limit).
    ///
    /// # Examples
    ///
    /// ```
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
    /// # let name = uuid::Uuid::new_v4().to_string();
    /// let semaphore = client.semaphore(name).limit(1).build()?;
    /// let permit = semaphore.acquire().await?;
    /// let waiting = tokio::spawn(semaphore.request().acquire());
    /// semaphore.close();
    /// assert!(semaphore.is_closed());
    /// let refused = waiting.await.expect("it does not panic");
    /// assert!(matches!(refused, Err(Error::Closed { .. })));
    /// permit.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn close(&self) {
        self.core.close();
    }

    /// Whether [`close`](Self::close) was called, on this one or a clone.
    ///
    /// # Examples
    ///
    /// See [`close`](Self::close).
    pub fn is_closed(&self) -> bool {
        self.core.closing.is_closed()
    }

    /// How much of the limit is free now. Another process may take it the next moment, and while
    /// somebody waits it is not for a newcomer.
    ///
    /// # Errors
    ///
    /// As for [`inspect`](Self::inspect).
    ///
    /// # Cancel safety
    ///
    /// Safe: it only looks.
    ///
    /// # Examples
    ///
    /// See [`add_permits`](Self::add_permits).
    pub async fn available_permits(&self) -> Result<u32, Error> {
        let now = self.core.inspect_page("available_permits", (0, 0), (0, 0)).await?;
        Ok(u64::from(now.limit).saturating_sub(now.held) as u32)
    }

    /// Has the server purge ended leases and serve the queue. Answers how many still wait.
    ///
    /// Waiting processes do this by themselves; an operator may be quicker.
    ///
    /// # Errors
    ///
    /// As for [`inspect`](Self::inspect).
    ///
    /// # Cancel safety
    ///
    /// Safe.
    ///
    /// # Examples
    ///
    /// ```
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
    /// # let name = uuid::Uuid::new_v4().to_string();
    /// # let semaphore = client.semaphore(name).limit(3).build()?;
    /// assert_eq!(semaphore.wake().await?, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wake(&self) -> Result<u64, Error> {
        loop {
            let (wake_in, queued) = self.core.wake().await?;
            if wake_in != Some(Duration::ZERO) {
                return Ok(queued);
            }
        }
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("name", &self.core.name)
            .field("settings", &self.core.settings)
            .finish_non_exhaustive()
    }
}
