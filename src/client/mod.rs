//! The client of a process: its connections, and the semaphores that use them.

mod builder;
mod connect;
#[cfg(feature = "local")]
mod local;
mod names;
mod persist;

use std::fmt;
use std::sync::Arc;

use crate::context::Context;
use crate::diagnosis::{Diagnosis, examine};
use crate::error::Error;

use crate::semaphore::SemaphoreBuilder;
pub use builder::SemaphoreClientBuilder;
pub use names::Names;

/// The connection to Redis that all semaphores of a process share. Clones are cheap.
///
/// A client uses two connections, regardless of the number of semaphores and waits: one for
/// commands and one for grant messages. In a cluster, a client uses up to two connections for each
/// node. A semaphore whose permits are [acknowledged](SemaphoreBuilder::acknowledged_by) by
/// replicas uses one more connection.
///
/// Background tasks refresh permits and release dropped permits. These tasks end with
/// [`shutdown`](Self::shutdown), or when all semaphores and permits are dropped. If `detach` or
/// `let_expire` was called for a permit, the tasks may continue for one more lease.
///
/// # Runtimes
///
/// Connect in a Tokio runtime with I/O and time (`enable_all`). Outside a runtime, connecting
/// returns [`Error::Invalid`]. If I/O or time is not enabled, Tokio panics with a message that
/// names the missing part.
///
/// That runtime is the *I/O runtime*. Connections, timers and background work belong to it, so it
/// must keep running. The API may be used from any thread, in another runtime or in none: the
/// caller only waits for the I/O runtime.
///
/// | I/O runtime | Calls | Permits |
/// |---|---|---|
/// | runs | are made | are refreshed |
/// | is blocked | wait until it runs again | are lost when their leases expire |
/// | has ended | return [`Error::Shutdown`] | are lost when their leases expire, or earlier |
///
/// If the I/O runtime is blocked, [`Permit::lost`](crate::Permit::lost) in another runtime returns
/// when the I/O runtime runs again. If the I/O runtime has ended, `lost` returns immediately, and
/// the permit is lost from then on.
///
/// Do not block the I/O runtime: use `tokio::task::spawn_blocking` for blocking work, or connect in
/// a runtime with its own threads.
///
/// **Tests.** Each `#[tokio::test]` has its own runtime, which ends with the test. If tests share a
/// client in a `static`, the client ends with the test that connected. Other tests then fail with
/// [`Error::Shutdown`]. Connect in each test, or keep the runtime in a `static`, too.
///
/// **Forks.** A client cannot be used in a forked process. In such a process, each call returns an
/// [`Error::Invalid`] whose `what` is `"process"`. Connect again in the forked process, on a new
/// runtime: Tokio does not support using the parent's runtime. If a program forks, do not enable
/// Tokio's feature `parking_lot`, which the feature `full` includes: [its locks can hang in a forked
/// process](https://github.com/Amanieu/parking_lot/issues/515).
///
/// **Paused clock.** If Tokio's clock is paused (`tokio::time::pause`), connecting returns
/// [`Error::Invalid`], because timeouts would not follow real time. Do not pause the clock after
/// connecting either. For tests with a paused clock, use semaphores in memory (feature `local`).
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

    /// Connects with default settings.
    ///
    /// A URL is `redis://user:password@host:6379/0` or `redis+unix:///path/of/socket?db=1`.
    /// [`IntoServer`](crate::IntoServer) lists all forms. With the feature `tls`, a URL may begin
    /// with `rediss://`: the server's certificate must then be signed by an authority that the
    /// system trusts. For other authorities, use `SemaphoreClientBuilder::certificates`.
    ///
    /// The client is bound to the [runtime](Self#runtimes) in which this method is called.
    ///
    /// # Errors
    ///
    /// See [`SemaphoreClientBuilder::connect`].
    ///
    /// # Cancel safety
    ///
    /// Safe. A canceled call leaves nothing behind.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// Returns a builder for a connection with custom settings.
    pub fn builder() -> SemaphoreClientBuilder {
        SemaphoreClientBuilder::new()
    }

    /// Returns a builder for the semaphore with this name.
    ///
    /// A name has 1 to 512 bytes, without braces and control characters. All processes that use the
    /// same name, prefix and database on the same server share the semaphore.
    pub fn semaphore(&self, name: impl Into<String>) -> SemaphoreBuilder {
        SemaphoreBuilder::new(self.context.clone(), name.into())
    }

    /// Checks the server for conditions that endanger semaphores.
    ///
    /// Such conditions are settings that can lose permits, missing ACL permissions, and a lack of
    /// memory or connections. The result contains each check with its finding and a suggested fix.
    /// The call runs a few commands, uses only keys that no semaphore uses, and leaves no keys
    /// behind.
    ///
    /// If the client was built with
    /// [`read_only`](crate::SemaphoreClientBuilder::read_only), `doctor` expects only the
    /// permissions of a read-only user. If permissions may be missing, connect with
    /// [`for_doctor`](crate::SemaphoreClientBuilder::for_doctor).
    ///
    /// Most checks need `+info` and `+config|get`, which semaphores do not need. A check that the
    /// user's permissions do not allow is reported as unchecked. The server's `timeout` setting is
    /// not checked, because it does not close subscribed connections.
    ///
    /// # Errors
    ///
    /// - [`Error::Connect`]: the server cannot be reached. The error is returned within about
    ///   five response timeouts. With sentinels, finding the primary takes additional time.
    /// - [`Error::Shutdown`]: the I/O runtime has ended.
    ///
    /// # Cancel safety
    ///
    /// Safe. A canceled call leaves nothing behind.
    pub async fn doctor(&self) -> Result<Diagnosis, Error> {
        let context = self.context.clone();
        let examine = async move {
            let settings = &context.settings;
            let (patience, access) = (settings.call_timeout(), settings.access);
            examine(&context.servers, &context.prefix, patience, access).await
        };
        self.context.in_a_task(examine).await
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Ends the background work, and delivers pending releases.
    ///
    /// Waiting requests leave the queue, and their calls return [`Error::Shutdown`]. Dropped
    /// permits are released or, with `let_expire_on_drop`, start their last lease. The call returns
    /// when Redis has confirmed all this work, or after twice the response timeout.
    ///
    /// Call this method before the program exits. Dropped permits are also released when the I/O
    /// runtime ends (see [`Permit`](crate::Permit#dropping)), but not when the program calls
    /// `std::process::exit`.
    ///
    /// Permits that are still held are no longer refreshed. Such a permit is lost when its lease
    /// expires, unless it is released or dropped before.
    ///
    /// After an outage, an acquire that got no reply may still reach the server after the shutdown.
    /// A permit that is granted to such an acquire is freed when its lease expires.
    ///
    /// # Cancel safety
    ///
    /// Safe. After the first poll, the work continues in the background.
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
