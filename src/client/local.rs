//! Semaphores in memory, without a server.

use std::sync::Arc;

use crate::client::connect::current_runtime;
use crate::client::{SemaphoreClient, SemaphoreClientBuilder};
use crate::error::Error;
use crate::protocol::id;
use crate::server::{Local, Servers};
use crate::wakeup::{Channel, Listener, Wakeups};

impl SemaphoreClient {
    /// Creates a client for tests, with semaphores in memory instead of Redis. Requires the feature
    /// `local`.
    ///
    /// Each call creates a separate server, which is shared by the client's clones and by clients
    /// from [`another_process`](Self::another_process). All calls work and return the same results
    /// as with a real server, including errors and losses. These are the differences:
    ///
    /// - Outages, lost messages, failovers, full memory and races between machines do not occur.
    /// - The end of a client's runtime releases nothing: permits stay held until their leases
    ///   expire.
    /// - Unused semaphores do not expire, and nothing survives the process.
    /// - [`acknowledged_by`](crate::SemaphoreBuilder::acknowledged_by) finds no replicas, and
    ///   [`names`](Self::names) does not count the keys.
    /// - Calls become slower with the number of holders and waiters.
    /// - [`doctor`](Self::doctor) reports that the server is in memory, as a critical finding.
    ///
    /// Time is measured by Tokio's clock. If a test pauses the clock (Tokio's feature `test-util`),
    /// the test does not wait for leases, timeouts and losses. While all tasks wait, the clock
    /// advances automatically to the next timer, so a test can just sleep. `tokio::time::advance`
    /// does not wait for refreshes: if a test advances the clock by a lease and does not sleep in
    /// between, permits are lost. Each runtime has its own clock, so such a test must do everything
    /// in one runtime.
    ///
    /// Like every client, a local client is bound to the [runtime](Self#runtimes) in which it is
    /// created. Tests cannot share a client in a `static`.
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`]: the caller is not in a Tokio runtime.
    ///
    /// # Examples
    ///
    /// This example tests a program that must stop when it has lost its permit. At first, another
    /// process holds the permit. That process crashes before the program starts to wait.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use redis_semaphore::{Error, Semaphore, SemaphoreClient};
    /// use tokio::time::Instant;
    ///
    /// /// The code under test: it takes a minute, and requires a permit.
    /// async fn export(semaphore: &Semaphore) -> Result<bool, Error> {
    ///     let permit = semaphore.acquire().await?;
    ///     tokio::select! {
    ///         () = permit.lost() => return Ok(false),
    ///         () = tokio::time::sleep(Duration::from_secs(60)) => {}
    ///     }
    ///     permit.release().await?;
    ///     Ok(true)
    /// }
    ///
    /// // In a test: #[tokio::test(start_paused = true)]
    /// #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// async fn main() -> Result<(), Error> {
    ///     let client = SemaphoreClient::local()?;
    ///     let exports = client.semaphore("exports").limit(1).build()?;
    ///     let other = client.another_process()?;
    ///     let theirs = other.semaphore("exports").limit(1).build()?.acquire().await?;
    ///
    ///     // As after a crash, the lease is not refreshed. `export` waits until the lease expires.
    ///     other.shutdown().await;
    ///     let started = Instant::now();
    ///     assert!(export(&exports).await?);
    ///     assert_eq!(started.elapsed(), Duration::from_secs(30 + 60));
    ///     assert!(theirs.is_lost());
    ///
    ///     // A revoked permit is lost at its next refresh.
    ///     let revoke = async {
    ///         tokio::time::sleep(Duration::from_secs(5)).await;
    ///         let now = exports.inspect().await?;
    ///         exports.revoke(&now.holders[0].id).await
    ///     };
    ///     let (is_done, revoked) = tokio::join!(export(&exports), revoke);
    ///     assert!(!is_done?);
    ///     revoked.map(drop)
    /// }
    /// ```
    pub fn local() -> Result<Self, Error> {
        Self::builder().local()
    }

    /// Creates another client of the same [local](Self::local) server, as if in another process,
    /// with the same settings. Requires the feature `local`.
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`]: the client is not a local client, or the caller is not in a Tokio
    ///   runtime.
    pub fn another_process(&self) -> Result<Self, Error> {
        let context = &self.context;
        let Servers::Local(local) = &context.servers else {
            let reason = "is a real server: only a client of local() can create another client \
                          this way";
            return Err(Error::invalid("server", reason));
        };
        let mut builder = Self::builder().prefix(&context.prefix);
        builder.client_name = Some(id::client_name_of(&context.client).to_owned());
        builder.settings = context.settings;
        builder.at(local.clone())
    }
}

impl SemaphoreClientBuilder {
    /// Creates a client like [`SemaphoreClient::local`], with custom settings. Settings for servers
    /// and connections have no effect, such as functions, credentials, certificates and read-only
    /// mode.
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`]: the caller is not in a Tokio runtime, or a setting is invalid.
    ///
    /// # Examples
    ///
    /// ```
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// let client = SemaphoreClient::builder().client_name("importer").local()?;
    /// let semaphore = client.semaphore("jobs").limit(3).build()?;
    /// let _permit = semaphore.acquire().await?;
    /// assert_eq!(semaphore.inspect().await?.holders[0].client_name(), "importer");
    /// # Ok(())
    /// # }
    /// ```
    pub fn local(self) -> Result<SemaphoreClient, Error> {
        self.at(Local::new())
    }

    fn at(self, local: Arc<Local>) -> Result<SemaphoreClient, Error> {
        self.check()?;
        current_runtime()?;
        let name = self.new_client();
        let messages = local.listen(&name);
        let channel = Arc::new(Channel::of_process(&self.prefix, &name));
        let listener = Listener::Local(channel.clone(), messages);
        Ok(self.start(name, Servers::Local(local), Wakeups::Process(channel), listener))
    }
}
