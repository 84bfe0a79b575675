//! What a process has once: its connections, and the semaphores that are built on them.

mod builder;
mod connect;
#[cfg(feature = "local")]
mod local;
mod names;
mod persist;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::context::Context;
use crate::diagnosis::{Diagnosis, examine};
use crate::error::Error;
use crate::runtime::{Deadline, current_runtime};
use crate::semaphore::SemaphoreBuilder;
pub use builder::SemaphoreClientBuilder;
pub use names::Names;

/// The connection to Redis that all semaphores of a process share. Cheap to clone.
///
/// It has two connections, however many semaphores and waits there are: one for commands and one
/// for wake-ups (in a cluster: at each node that it uses). A semaphore whose permits replicas
/// [acknowledge](SemaphoreBuilder::acknowledged_by) has one of its own. Background tasks in the
/// runtime in which it was connected renew permits and give back what was dropped; they end when
/// all semaphores and permits are gone (a lease after the last that was left or passed on), or with
/// [`shutdown`](Self::shutdown).
///
/// # Runtimes
///
/// Connecting needs a runtime of tokio, and is an [`Error::Invalid`] outside of one. It must have
/// I/O and time (`enable_all`): where it has not, tokio panics, and says which is missing. That
/// runtime makes all calls from then on, so it must go on running. Everything may be called from
/// elsewhere:
///
/// - from another runtime with time. All times that are documented hold there, whatever becomes of
///   the first one: while it is blocked, or nobody drives it, calls end with
///   [`Error::Unavailable`]; when it has ended, nothing is renewed any more, and there are no new
///   permits ([`Error::Shutdown`]). What remains to be called then is called in the runtime of the
///   caller.
/// - from outside any runtime, with `futures::executor::block_on` for instance. The times that are
///   documented are then measured by the first one, as long as it runs. When it has ended, calls
///   end with [`Error::Shutdown`], and [`Permit::lost`](crate::Permit::lost) at once.
///
/// So a client belongs to the runtime that connected it. Each `#[tokio::test]` has a runtime of its
/// own, which ends with the test: tests that share a client in a `static` fail now and then with
/// [`Error::Shutdown`], when the test that connected ends first. Connect in each test, or have a
/// test runtime in a `static`, too.
///
/// A client belongs to its process, too. In a process that was forked from the one that connected,
/// each call is an [`Error::Invalid`] whose `what` is `"process"`: connect again there. (Do not go
/// on with the runtime of the parent there either: tokio does not support that.)
///
/// Nothing works while a test has paused tokio's clock (`tokio::time::pause`): no answer comes in
/// time where no time passes. Connecting is an [`Error::Invalid`] then, calls end with
/// [`Error::Unavailable`], and waits may, too. Resume the clock for what uses semaphores, or have
/// them in memory (the feature `local`), where it does what the test wants.
///
/// # Examples
///
/// ```
/// use redis_semaphore::{Error, SemaphoreClient};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
/// let semaphore = client.semaphore("uploads").limit(10).build()?;
/// drop(semaphore.acquire().await?);
/// client.shutdown().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SemaphoreClient {
    context: Arc<Context>,
}

impl SemaphoreClient {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Connects with default settings. A URL is `redis://user:password@host:6379/0` or
    /// `redis+unix:///path/of/socket?db=1`: [`IntoServer`](crate::IntoServer) has all forms. With
    /// the feature `tls` it may begin with `rediss://`: over TLS, to a server with a certificate of
    /// an authority that the system trusts (for others see `SemaphoreClientBuilder::certificates`).
    ///
    /// The client belongs to the [runtime](Self#runtimes) in which this is called, and ends with
    /// it.
    ///
    /// # Errors
    ///
    /// As for [`SemaphoreClientBuilder::connect`].
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is left behind.
    ///
    /// # Examples
    ///
    /// See [`SemaphoreClient`].
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// For settings of your own.
    ///
    /// # Examples
    ///
    /// See [`SemaphoreClientBuilder`].
    pub fn builder() -> SemaphoreClientBuilder {
        SemaphoreClientBuilder::new()
    }

    /// A semaphore of this name: 1 to 512 bytes, no braces, no control characters. Whoever uses the
    /// same name (and prefix) on the same server shares it.
    ///
    /// # Examples
    ///
    /// See [`SemaphoreBuilder`].
    pub fn semaphore(&self, name: impl Into<String>) -> SemaphoreBuilder {
        SemaphoreBuilder::new(self.context.clone(), name.into())
    }

    /// Looks at the server for what endangers the semaphores on it: a setting by which it may
    /// forget who holds, a right that the user has no more, memory or connections that run out.
    /// The answer has each check with what was found, and what mends it.
    ///
    /// A user with no more rights than semaphores need may not ask for most of that: it takes
    /// `+info` and `+config|get`. What could not be looked at is told as well. It runs a handful of
    /// commands, writes to keys that nobody has, and leaves nothing behind.
    ///
    /// The setting `timeout` needs no look: it ends idle connections, but not those that listen.
    ///
    /// # Errors
    ///
    /// [`Error::Connect`] when the server cannot be reached, after three response timeouts at most;
    /// ten seconds more where sentinels are asked for it.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is left behind.
    ///
    /// # Examples
    ///
    /// See [`Diagnosis`](crate::Diagnosis).
    pub async fn doctor(&self) -> Result<Diagnosis, Error> {
        let context = self.context.clone();
        let patience = context.settings.call_timeout();
        self.in_a_runtime(async move { examine(&context.servers, &context.prefix, patience).await })
            .await
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Here, or by a task where the caller has no runtime.
    async fn in_a_runtime<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        self.context.check_process()?;
        if current_runtime().is_some() {
            return work.await;
        }
        let done = self.context.in_a_task(Deadline::after(Duration::MAX), work).await;
        done.unwrap_or(Err(Error::Shutdown))
    }

    /// Ends the background work in order: waits end with [`Error::Shutdown`] and leave their
    /// queues, dropped permits are given back or left. Returns when Redis has confirmed that, or
    /// after twice the response timeout.
    ///
    /// Call it before a program ends. The end of the runtime that connected delivers dropped
    /// permits as well (see [`Permit`](crate::Permit#dropping)), but `std::process::exit` does not.
    ///
    /// Permits that are still held are not taken away; they are renewed no more, and are lost at
    /// the end of their leases unless they are released or dropped before.
    ///
    /// After an outage an acquire that had no answer may still be on its way, and reach the server
    /// when all of this is over. What it is granted then is lost at the end of its lease.
    ///
    /// # Cancel safety
    ///
    /// Safe: once polled, the work ends in the background.
    ///
    /// # Examples
    ///
    /// See [`SemaphoreClient`].
    pub async fn shutdown(&self) {
        self.context.shut_down().await;
    }
}

impl fmt::Debug for SemaphoreClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let context = &self.context;
        f.debug_struct("SemaphoreClient")
            .field("prefix", &context.prefix)
            .field("client", &context.client)
            .field("settings", &context.settings)
            .finish_non_exhaustive()
    }
}
