//! Semaphores without a server.

use std::sync::Arc;

use crate::client::connect::current_home;
use crate::client::{SemaphoreClient, SemaphoreClientBuilder};
use crate::error::Error;
use crate::protocol::id;
use crate::server::{Local, Servers};
use crate::wakeup::{Channel, Listener, Wakeups};

impl SemaphoreClient {
    /// For tests of what uses semaphores: they are in memory, and need neither Redis nor a network.
    /// Feature `local`.
    ///
    /// Each call makes a server of its own, which is shared by clones and by what
    /// [`another_process`](Self::another_process) makes. All calls are there, and answer as those
    /// to a real server do, errors and losses included. Three things are different: there are no
    /// outages; nothing is forgotten because it was not used for long; and nothing outlives the
    /// process.
    ///
    /// Time is tokio's. So a test that pauses it (tokio's feature `test-util`) does not wait for
    /// leases, timeouts and losses: while all tasks wait, the clock goes on by itself to the next
    /// moment at which one of them goes on, or a test advances it with `tokio::time::advance`. Each
    /// runtime has a clock of its own, so a test that pauses it does all in one. As every client,
    /// it belongs to the [runtime](Self#runtimes) in which it is made: tests cannot share one in a
    /// `static`.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] outside of a runtime of tokio.
    ///
    /// # Examples
    ///
    /// A test of a program that must stop when it has lost its permit. The other process holds it,
    /// and dies.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use redis_semaphore::{Error, Semaphore, SemaphoreClient};
    /// use tokio::time::Instant;
    ///
    /// /// What is tested: it takes a minute, and only a holder may do it.
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
    ///     // As if it was killed: its lease is renewed no more, and the next one waits for its end.
    ///     other.shutdown().await;
    ///     let started = Instant::now();
    ///     assert!(export(&exports).await?);
    ///     assert_eq!(started.elapsed(), Duration::from_secs(30 + 60));
    ///     assert!(theirs.is_lost());
    ///
    ///     // A permit that somebody takes away is noticed with its next renewal.
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

    /// Another client of the same [local](Self::local) server, as another process would have it,
    /// with the same settings. Feature `local`.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] where the server is not a local one, and outside of a runtime of tokio.
    ///
    /// # Examples
    ///
    /// See [`local`](Self::local).
    pub fn another_process(&self) -> Result<Self, Error> {
        let context = &self.context;
        let Servers::Local(local) = &context.servers else {
            let reason = "is a real one: another process connects to it, and so can this one again";
            return Err(Error::invalid("server", reason));
        };
        let mut builder = Self::builder().prefix(&context.prefix);
        builder.client_name = Some(id::client_name_of(&context.client).to_owned());
        builder.settings = context.settings;
        builder.at(local.clone())
    }
}

impl SemaphoreClientBuilder {
    /// As [`SemaphoreClient::local`], with settings of your own. What is about a server or the way
    /// to it has no effect: the response timeout, functions, a password, that one only looks.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] outside of a runtime of tokio, and when a setting cannot work.
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
        current_home()?;
        let name = self.new_client();
        let messages = local.listen(&name);
        let wakeups = Wakeups::Process(Arc::new(Channel::of_process(&self.prefix, &name)));
        Ok(self.start(name, Servers::Local(local), wakeups, Listener::Local(messages)))
    }
}
