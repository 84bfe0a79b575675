//! A permit: its methods, and the effect of dropping it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::metrics::Origin;
use crate::protocol::ReleaseMode;
use crate::releases::Ending;
use crate::runtime::Deadline;
use crate::semaphore::core::{Core, Refresh, Release};
use crate::semaphore::lease::{Grant, Lease};
use crate::semaphore::ledger::Acquisition;
use crate::semaphore::permit_watch::PermitWatch;

/// A permit granted by a [`Semaphore`](crate::Semaphore). The permit is held until it is lost or
/// dropped, or until the holder calls a method that ends it, such as [`release`](Self::release).
///
/// A permit is a lease: if its holder crashes, the server frees the permit when the lease expires.
/// While the permit is held, its lease is refreshed in the background, unless
/// [`auto_refresh`](crate::SemaphoreBuilder::auto_refresh) is off. If refreshing fails until the
/// lease expires, the permit is lost. Then [`lost`](Self::lost) completes, even if Redis is
/// unreachable. `lost` completes at the latest at the lease's deadline on this machine's monotonic
/// clock. Code that must stop when the permit is lost should `select!` on `lost`:
///
/// ```
/// # use redis_semaphore::{Error, SemaphoreClient};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
/// # let name = uuid::Uuid::new_v4().to_string();
/// # let semaphore = client.semaphore(name).limit(1).build()?;
/// # async fn work() {}
/// let permit = semaphore.acquire().await?;
/// tokio::select! {
///     () = work() => {}
///     () = permit.lost() => eprintln!("stopped: somebody else may hold the permit now"),
/// }
/// permit.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// `Permit` is `'static`: move it into a task, or store it next to the resource that it protects.
///
/// ```
/// # use redis_semaphore::{Error, Permit, SemaphoreClient};
/// struct Upload {
///     name: String,
///     _permit: Permit,
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
/// # let name = uuid::Uuid::new_v4().to_string();
/// # let semaphore = client.semaphore(name).limit(1).build()?;
/// let upload = Upload { name: "a.txt".to_owned(), _permit: semaphore.acquire().await? };
/// let uploading = tokio::spawn(async move { println!("sending {}", upload.name) });
/// # uploading.await.unwrap();
/// # Ok(())
/// # }
/// ```
///
/// If a process is paused, for example with its virtual machine, the process finds out only later
/// that its lease has expired. Every system of leases has this gap. If the gap matters, send the
/// [fencing token](Self::fencing_token) with each write. The store must then reject lower tokens.
///
/// # Dropping
///
/// Dropping a permit releases it in the background, or [lets it expire](Self::let_expire) if
/// [`let_expire_on_drop`](crate::SemaphoreBuilder::let_expire_on_drop) is on. Dropping never blocks
/// and never panics, even outside of a runtime.
///
/// The runtime in which the client connected is the I/O runtime. Before the I/O runtime ends, it
/// delivers the releases of dropped permits, and of permits that the runtime's async tasks still
/// hold. The delivery takes at most the response timeout (default 2 s), and never more than 10 s.
/// So if Redis replies in time, the end of `#[tokio::main]` loses no release, not even after `?` or
/// a panic. `std::process::exit`, `Runtime::shutdown_background` and a signal do not wait for the
/// delivery. If a program ends in one of these ways, call
/// [`SemaphoreClient::shutdown`](crate::SemaphoreClient::shutdown) first. Otherwise a permit that
/// was dropped a moment earlier may stay taken until its lease expires (default 30 s).
///
/// If a permit is dropped after the I/O runtime has ended, a thread releases the permit, and the
/// end of the program does not wait for this thread. Blocking code (`spawn_blocking`,
/// `block_in_place`) may outlive the I/O runtime. If such code holds a permit, await the code's
/// task in `main`.
///
/// In a process that was forked from the holder's process, dropping a permit does nothing.
#[must_use = "an unused permit is released immediately"]
pub struct Permit {
    pub(super) core: Arc<Core>,
    pub(super) acquisition: Arc<Acquisition>,
    /// How `drop` ends the permit. `None` if nothing is left to do.
    pub(super) on_drop: Option<Ending>,
}

impl Permit {
    pub(crate) fn new(
        core: Arc<Core>,
        acquisition: Arc<Acquisition>,
        grant: Grant,
        origin: Origin,
    ) -> Self {
        let settings = &core.settings;
        let hold = core.meter.granted(origin, acquisition.weight, acquisition.created);
        let lease = Lease::new(grant, settings.first_lease(), settings.max_hold, hold);
        acquisition.begin_lease(lease);
        Self { on_drop: Some(core.settings.ending_on_drop()), core, acquisition }
    }

    pub(super) fn lease(&self) -> &Lease {
        self.acquisition.lease().expect("the lease began with the permit")
    }

    /// Releases the permit, and waits for Redis to confirm.
    ///
    /// # Errors
    ///
    /// - [`Error::Lost`] if the permit was already lost: another holder may have been admitted
    ///   before the work was done.
    /// - [`Error::Unavailable`] if Redis is unavailable for twice the response timeout.
    /// - [`Error::Rejected`] if Redis returns a permanent error.
    /// - [`Error::Shutdown`] if the [I/O runtime](crate::SemaphoreClient#runtimes) has ended. The
    ///   permit is then released as if it was [dropped](Self#dropping).
    ///
    /// After `Unavailable` or `Rejected`, the release is retried in the background until Redis
    /// confirms the release or the lease expires.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropping the future does not stop the release, which continues in the background.
    ///
    /// # Examples
    ///
    /// If work that lost its permit counts as failed, `?` is enough. Otherwise, handle the loss:
    ///
    /// ```
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
    /// # let name = uuid::Uuid::new_v4().to_string();
    /// # let permit = client.semaphore(name).limit(1).build()?.acquire().await?;
    /// match permit.release().await {
    ///     Err(Error::Lost { .. }) => eprintln!("somebody else may have been at it, too"),
    ///     released => released?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn release(self) -> impl Future<Output = Result<(), Error>> {
        self.end(Ending::RETURN)
    }

    /// Releases the permit and subtracts its weight from the effective limit, like `forget` of
    /// Tokio's permits. The result becomes the runtime limit.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`release`](Self::release). After [`Error::Lost`], the limit is
    /// unchanged, but if a reply was lost and the lease expired before the retry, it may be reduced.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropping the future does not stop the call, which continues in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
    /// # let name = uuid::Uuid::new_v4().to_string();
    /// let tickets = client.semaphore(name).initial_permits(2).build()?;
    /// tickets.acquire().await?.forget().await?;
    /// assert_eq!(tickets.limit().await?, 1);
    /// # tickets.clear_limit().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn forget(self) -> impl Future<Output = Result<(), Error>> {
        self.end(Ending::Release(ReleaseMode::Forget))
    }

    pub(super) fn end(mut self, how: Ending) -> impl Future<Output = Result<(), Error>> {
        // If this future is dropped or never polled, or if the call fails, `drop` below ends the
        // permit in the background. The permit is not refreshed any more, even if the future is
        // never polled.
        self.on_drop = Some(how);
        self.acquisition.end();
        async move {
            let core = &self.core;
            let deadline = Deadline::after(core.context.settings.call_timeout());
            let was_lost = self.let_go();
            let (ending, acquisition) = (how.unless_lost(was_lost), self.acquisition.clone());
            let operation = how.operation();
            let response = match ending {
                Ending::Release(mode) => core.ask(Release { acquisition, mode }, deadline).await,
                Ending::LetExpire => {
                    // The last lease has its full duration, even beyond `max_hold`.
                    let duration = core.settings.first_lease();
                    core.ask(Refresh { acquisition, duration, operation }, deadline).await
                }
            };
            // If the permit was lost before the call, report the loss instead of the error of the
            // call.
            let response = response.map_err(|error| match was_lost {
                true => self.loss(operation),
                false => error,
            })?;
            let was_found = match ending {
                // If the first reply was lost, the second attempt returns "unknown". The lease had
                // not expired at the first attempt, so the first attempt found the permit, unless
                // another client had revoked it.
                Ending::Release(ReleaseMode::Return) => response.reply || response.is_repeated,
                // If the lease has expired since, the first attempt may not have reached the server.
                Ending::Release(ReleaseMode::Forget) => {
                    response.reply || response.is_repeated && !self.expires_in().is_zero()
                }
                Ending::LetExpire => {
                    core.part_with(&self.acquisition);
                    response.reply
                }
            };
            self.on_drop = None;
            let was_held = was_found && !was_lost;
            if !was_held {
                self.core.lose(&self.acquisition);
            }
            self.lost_unless(was_held, operation)
        }
    }

    /// Ends the refreshes of the permit. Returns whether the permit was already lost.
    pub(super) fn let_go(&self) -> bool {
        self.acquisition.end();
        let was_lost = self.lease().let_go();
        if was_lost {
            self.core.lose(&self.acquisition);
        }
        was_lost
    }

    pub(super) fn lost_unless(&self, is_held: bool, operation: &'static str) -> Result<(), Error> {
        if is_held { Ok(()) } else { Err(self.loss(operation)) }
    }

    pub(crate) fn loss(&self, operation: &'static str) -> Error {
        let (semaphore, id) = (self.core.name.clone(), self.acquisition.id.clone());
        Error::Lost { semaphore, operation, id }
    }

    /// Restarts the lease now. The lease is also refreshed in the background, unless
    /// [`auto_refresh`](crate::SemaphoreBuilder::auto_refresh) is off.
    ///
    /// # Errors
    ///
    /// - [`Error::Lost`] if the permit is lost. A loss is final.
    /// - [`Error::Unavailable`] if Redis is unavailable for twice the response timeout. The
    ///   permit is still held until [`expires_in`](Self::expires_in) is zero.
    /// - [`Error::Rejected`] if Redis returns a permanent error.
    /// - [`Error::Shutdown`] if the [I/O runtime](crate::SemaphoreClient#runtimes) has ended. The
    ///   lease can no longer be refreshed.
    ///
    /// # Cancel safety
    ///
    /// Safe. If the future is dropped, the server may have refreshed the lease, but
    /// [`expires_in`](Self::expires_in) does not include that refresh.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
    /// # let name = uuid::Uuid::new_v4().to_string();
    /// let lease = Duration::from_secs(10);
    /// let semaphore = client.semaphore(name).limit(1).lease(lease).auto_refresh(false).build()?;
    /// let permit = semaphore.acquire().await?;
    /// permit.refresh().await?;
    /// assert!(permit.expires_in() <= lease);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn refresh(&self) -> Result<(), Error> {
        let (core, lease) = (&self.core, self.lease());
        // The server may not know of the loss yet, for example because the server's clock was set
        // back.
        if self.is_lost() {
            return Err(self.loss("refresh"));
        }
        let Some(duration) = lease.next_duration(core.settings.lease) else {
            return Ok(());
        };
        let operation = "refresh";
        let request = Refresh { acquisition: self.acquisition.clone(), duration, operation };
        let deadline = Deadline::after(core.context.settings.call_timeout());
        let response = core.ask(request, deadline).await?;
        if !response.reply {
            core.lose(&self.acquisition);
        }
        self.lost_unless(response.reply && lease.refreshed(response.sent, duration), "refresh")
    }

    /// Waits until the permit is lost. The wait ends at the latest when the lease expires on this
    /// machine's monotonic clock. [`PermitWatch::ended`] describes the exceptions: an I/O runtime
    /// that has ended or is blocked, and forked processes.
    ///
    /// # Cancel safety
    ///
    /// Safe: the call changes nothing.
    pub async fn lost(&self) {
        self.watch().ended().await;
    }

    /// Returns a watch that reports when the permit is no longer held, because it was lost or
    /// released. Pass the watch to subtasks: it can be cloned, and can be sent to other threads.
    /// The watch does not keep the permit held.
    pub fn watch(&self) -> PermitWatch {
        PermitWatch::new(&self.acquisition, &self.core.context)
    }

    /// Returns whether the permit is lost. A lost permit stays lost.
    pub fn is_lost(&self) -> bool {
        self.lease().is_lost()
    }

    /// Returns for how long the permit is guaranteed to stay valid without another refresh. Returns
    /// zero if the permit is lost. The lease counts from a moment before the acquire or the last
    /// refresh was sent. So the lease does not expire on the server within the returned time,
    /// unless the server's clock jumps forward.
    ///
    /// # Examples
    ///
    /// ```
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
    /// # let name = uuid::Uuid::new_v4().to_string();
    /// let permit = client.semaphore(name).limit(1).build()?.acquire().await?;
    /// assert!(!permit.is_lost());
    /// assert!(permit.expires_in().as_secs() >= 20);
    /// assert_eq!(permit.weight(), 1);
    /// assert!(permit.fencing_token() > 0);
    /// println!("{}", permit.id());
    /// # Ok(())
    /// # }
    /// ```
    pub fn expires_in(&self) -> Duration {
        self.lease().expires_in()
    }

    /// Returns the fencing token: a number larger than the token of every earlier permit of the
    /// semaphore. After data loss, or after two hours without use, the token is larger only if the
    /// server's clock is not behind the last token.
    pub fn fencing_token(&self) -> u64 {
        self.lease().token
    }

    /// Returns the weight: how much of the limit the permit takes.
    pub fn weight(&self) -> u32 {
        self.acquisition.weight
    }

    /// Returns the unique ID of the permit on the server: `NOTIFY:CLIENT:WEIGHT:LEASE:NONCE`.
    /// CLIENT is the client name, a dot, and a suffix that is unique to the client. LEASE is in ms.
    pub fn id(&self) -> &str {
        &self.acquisition.id
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("semaphore", &self.core.name)
            .field("id", &self.acquisition.id)
            .field("weight", &self.acquisition.weight)
            .finish_non_exhaustive()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(on_drop) = self.on_drop.take() else {
            return;
        };
        // A process that was forked from the holder's process does not hold the permit.
        if self.core.context.is_forked() {
            return;
        }
        let was_lost = self.let_go();
        self.core.give_up(std::iter::once(&self.acquisition), on_drop.unless_lost(was_lost));
    }
}
