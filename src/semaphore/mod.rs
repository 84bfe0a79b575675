//! Semaphores: the public types, and the calls to the server that implement them.

// Layers, lowest first. Modules that are not listed are above all of these, and have no order:
// closing, settings, term, lease, ledger, core
mod acquire;
mod acquire_all;
mod adopt;
mod builder;
mod closing;
mod core;
mod detached_permit;
mod group;
mod group_cap;
mod inspect;
mod lease;
mod ledger;
mod let_expire;
mod limit;
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
pub use group::Group;
pub use permit::Permit;
pub use permit_watch::PermitWatch;
pub use permits::Permits;
#[cfg(feature = "blocking")]
pub(crate) use permits::first_lost;
pub use request::AcquireRequest;
pub use revoke::Revoked;

/// A counting semaphore that many processes and machines share.
///
/// Build a semaphore once per process, and clone it for each task. Clones are cheap, and a single
/// call to Redis can contain requests of several clones. Requests of semaphores that are built
/// separately are sent in separate calls. `Semaphore` and its permits are `Send`, `Sync` and
/// `'static`: move them into tasks, or store them in structs. The futures of
/// [`request`](Self::request) are `Send` and `'static`, so they can be spawned.
///
/// # Which method?
///
/// | method | if no permit is free | use it |
/// |---|---|---|
/// | [`acquire`](Self::acquire) | waits in the queue | if the work must be done |
/// | [`acquire_timeout`](Self::acquire_timeout) | waits up to `timeout` | if late work is useless |
/// | [`try_acquire`](Self::try_acquire) | returns `None` | if the work can be skipped |
/// | [`request`](Self::request) | you choose | if you set weight or head start, or spawn the wait |
///
/// [`acquire_many`](Self::acquire_many) and [`try_acquire_many`](Self::try_acquire_many) take a
/// weight. [`acquire_all`](crate::acquire_all) acquires permits of several semaphores.
///
/// # Order
///
/// The semaphore is fair: permits are granted in order of arrival, over all processes. Neither a
/// lighter request nor `try_acquire` overtakes a waiter. Only a request with a [head
/// start](AcquireRequest::head_start) overtakes other requests. With a head start of 5 s, a request
/// overtakes only requests that arrived less than 5 s before it.
///
/// A program's own calls take effect in the order in which the program makes them, as with Tokio's
/// semaphore. For example, an acquire can be granted the permit that the program dropped before the
/// acquire. An acquire does not queue behind a wait that the program canceled before the acquire.
/// If several calls are in flight at the same time, only acquires keep their order.
///
/// This order applies to all semaphores of one [`SemaphoreClient`](crate::SemaphoreClient) that
/// have the same name. However, waits of separately built semaphores may be queued in either order.
/// The order is guaranteed only if the program makes its calls in one task, or synchronizes its
/// tasks and threads. The order costs no round trip: pending releases are sent just before the next
/// call, over the same connection.
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
/// // At most three tasks, over all machines, are here at the same time.
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

    /// Returns the current outage of the semaphore's server, if the outage has been logged.
    #[cfg(feature = "tower")]
    pub(crate) fn outage(&self) -> Option<crate::server::Outage> {
        self.core.context.servers.outage(self.core.slot)
    }

    /// Returns the name, without the prefix.
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

    /// Creates a request with its own weight, head start and timeout. Defaults: weight 1, no head
    /// start, and the acquire timeout of the semaphore.
    pub fn request(&self) -> AcquireRequest {
        AcquireRequest::new(&self.core)
    }

    /// Waits in the queue for one permit.
    ///
    /// Queueing takes one call. In a cluster, queueing takes two calls until the process has
    /// subscribed to the semaphore's grant messages. While the request waits, the process sends
    /// only these calls for it:
    ///
    /// - a heartbeat at intervals of a third of the heartbeat timeout (by default, every 5 s): one
    ///   call for up to 1,000 waiting requests of this semaphore
    /// - one call when a lease may expire: if more than 16 clients wait, only about 17 of them send
    ///   this call
    ///
    /// # Errors
    ///
    /// - [`Error::Timeout`] if an acquire timeout is set and passes.
    /// - [`Error::Unavailable`] if Redis is unavailable for longer than the outage tolerance
    ///   (default 30 s).
    /// - [`Error::TooHeavy`] if the weight exceeds the declared limit, and no runtime limit is set.
    /// - [`Error::NoLimit`] if the semaphore uses the [existing
    ///   limit](SemaphoreBuilder::existing_limit) and no limit exists.
    /// - [`Error::NotAcknowledged`] if too few replicas
    ///   [acknowledge](SemaphoreBuilder::acknowledged_by) the permit in time.
    /// - [`Error::LeaseTooShort`] if five permits in a row expired before the call could return
    ///   them.
    /// - [`Error::Rejected`] if Redis returns a permanent error.
    /// - [`Error::Closed`] if the semaphore is [closed](Self::close).
    /// - [`Error::Shutdown`] if the client was shut down, or if the runtime in which the client
    ///   connected has ended.
    ///
    /// # Cancel safety
    ///
    /// Safe: if the future is dropped, the request leaves the queue in the background. If a permit
    /// may have been granted, the permit is released. The position in the queue is lost.
    ///
    /// # Keep polling the future
    ///
    /// A background task sends the request after the first poll. If you then keep the future but do
    /// not poll it, the server may still grant a permit to the request. This permit stays unused
    /// for a lease. Two kinds of futures are affected:
    ///
    /// - a pinned future that is kept after the end of the `select!` that polled it
    /// - a future in a stream such as `buffer_unordered`, while the stream's consumer awaits a
    ///   permit of the same semaphore: the consumer may wait until the unused permit's lease
    ///   expires
    ///
    /// To avoid this problem, drop the future, or run it in a task. Tokio's semaphore has the same
    /// problem, but without a time limit.
    pub async fn acquire(&self) -> Result<Permit, Error> {
        pin!(self.core.acquire_within(1.into(), self.core.settings.acquire_timeout)).await
    }

    /// Waits in the queue for a permit of weight `n`. Range: 1 to the limit. If `n` exceeds a
    /// runtime limit, the request waits until that limit is raised or cleared. To set a timeout,
    /// use [`request`](Self::request).
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`] if `n` is 0.
    /// - The errors of [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// See [`acquire`](Self::acquire).
    pub async fn acquire_many(&self, n: u32) -> Result<Permit, Error> {
        pin!(self.core.acquire_within(n.into(), self.core.settings.acquire_timeout)).await
    }

    /// Waits in the queue for one permit, but no longer than `timeout`. `timeout` replaces the
    /// semaphore's acquire timeout. For other weights, use [`request`](Self::request).
    ///
    /// If `timeout` is zero, this method does not wait: it takes a permit if one is free, like
    /// [`try_acquire`](Self::try_acquire). Any other timeout includes the round trip to Redis.
    ///
    /// # Errors
    ///
    /// - [`Error::Timeout`] if `timeout` passes. The error contains the waiting time and the last
    ///   position in the queue.
    /// - The other errors of [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// See [`acquire`](Self::acquire).
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
        pin!(self.core.acquire_within(1.into(), Some(timeout))).await
    }

    /// Takes one permit if one is free and no request waits, and returns `None` otherwise. Never
    /// queues.
    ///
    /// # Errors
    ///
    /// - [`Error::Unavailable`] if Redis is unavailable for the call timeout. The call timeout
    ///   is twice the response timeout, and is 4 s by default.
    /// - The other errors of [`acquire`](Self::acquire), except [`Error::Timeout`].
    ///
    /// # Cancel safety
    ///
    /// Safe: if the permit may have been granted, it is released in the background.
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
        pin!(self.core.try_acquire(1.into(), None)).await
    }

    /// Takes a permit of weight `n` if it fits now and no request waits, and returns `None`
    /// otherwise. Range: 1 to the limit. Never queues.
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`] if `n` is 0.
    /// - The errors of [`try_acquire`](Self::try_acquire).
    ///
    /// # Cancel safety
    ///
    /// See [`try_acquire`](Self::try_acquire).
    pub async fn try_acquire_many(&self, n: u32) -> Result<Option<Permit>, Error> {
        pin!(self.core.try_acquire(n.into(), None)).await
    }

    /// Closes this semaphore and its clones, like `close` of Tokio's semaphore. Every acquire that
    /// waits, is in flight, or starts after the close fails immediately with [`Error::Closed`]. In
    /// the background, waiting requests leave the queue, and permits that may have been granted to
    /// them are released.
    ///
    /// Held permits stay valid. They are still refreshed, and can be released. The close does not
    /// affect other processes, or semaphores of the same name that were built separately. To stop
    /// grants to all processes, use [`set_limit(0)`](Self::set_limit).
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

    /// Returns whether [`close`](Self::close) was called on this semaphore or a clone.
    pub fn is_closed(&self) -> bool {
        self.core.closing.is_closed()
    }

    /// Returns how much of the limit is free now. Another process may take the free permits
    /// immediately afterwards. While requests wait, a new request without a head start gets no free
    /// permit.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`inspect`](Self::inspect).
    ///
    /// # Cancel safety
    ///
    /// Safe: the call changes nothing.
    pub async fn available_permits(&self) -> Result<u32, Error> {
        let now = self.core.inspect_page("available_permits", (0, 0), (0, 0)).await?;
        Ok(u64::from(now.limit).saturating_sub(now.held) as u32)
    }

    /// Makes the server remove expired leases and grant free permits to waiters. Returns the number
    /// of requests that still wait.
    ///
    /// Waiting processes call `wake` themselves. An additional call can only make grants happen
    /// earlier.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`inspect`](Self::inspect).
    ///
    /// # Cancel safety
    ///
    /// Safe: repeating the call is harmless.
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
