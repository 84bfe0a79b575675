//! A permit: what its holder can do with it, and how it ends when it is dropped.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::batching::Request;
use crate::error::Error;
use crate::metrics::Origin;
use crate::protocol::ReleaseMode;
use crate::runtime::Deadline;
use crate::semaphore::acquisition::Acquisition;
use crate::semaphore::core::{Core, Refresh, Release};
use crate::semaphore::lease::{Grant, Lease};
use crate::semaphore::on_drop::OnDrop;
use crate::semaphore::permit_watch::PermitWatch;

/// The right to be one of those that the semaphore lets in, until it is released, dropped or lost.
///
/// A permit is leased: the server takes it back when its lease ends, so that a crashed holder
/// blocks nobody for ever. While the permit lives its lease is renewed in the background (unless
/// the semaphore was built without). When renewal fails for as long as the lease lasts, the permit
/// is lost: [`lost`](Self::lost) says so, at the latest at the deadline on this machine's own
/// clock, with Redis reachable or not. Work that must not go on without the permit races with it:
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
/// A permit borrows nothing: it can be moved into a task, or kept in what it is for, and is given
/// back with that.
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
/// Between the end of a lease and the moment at which a stopped process (a long pause of a virtual
/// machine, say) hears of it there is always a gap, in every system. Where that matters, send the
/// [fencing token](Self::fencing_token) along with what you write, and have the store refuse a
/// write that comes with a lower token than it has seen.
///
/// # Dropping
///
/// Dropping a permit gives it back in the background, or [leaves](Self::let_expire) it where the
/// semaphore was [built](crate::SemaphoreBuilder::let_expire_on_drop) so. It never blocks and never
/// panics, outside of a runtime too.
///
/// When the runtime that connected ends, permits that were dropped before, and those that its tasks
/// still hold, are delivered first. The end of the runtime waits for that, for up to the response
/// timeout (default 2 s), and 10 s at most. So the end of `#[tokio::main]` loses none of them, also
/// after `?` or a panic. `std::process::exit`, `Runtime::shutdown_background` and a signal do not
/// wait: call [`SemaphoreClient::shutdown`](crate::SemaphoreClient::shutdown) before. Otherwise a
/// permit that was dropped a moment earlier counts until its lease expires (default 30 s).
///
/// After the runtime that connected has ended, a permit is given back in the runtime in which it is
/// dropped. Outside of any runtime nothing can deliver it, and its lease expires.
///
/// In a process that was forked from the holder's, dropping a permit does nothing.
#[must_use = "a permit that is dropped at once is given back at once"]
pub struct Permit {
    pub(super) core: Arc<Core>,
    pub(super) acquisition: Arc<Acquisition>,
    /// What is left to do when it is dropped.
    pub(super) on_drop: Option<OnDrop>,
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
        let (semaphore, id) = (&core.name, &acquisition.id);
        tracing::debug!(semaphore, id, token = grant.token, "granted");
        let on_drop = Some(OnDrop::of(settings));
        Self { core, acquisition, on_drop }
    }

    pub(super) fn lease(&self) -> &Lease {
        self.acquisition.lease().expect("it began with the permit")
    }

    /// Gives the permit back now, and waits until Redis has it.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when it was held no longer: somebody else may have been let in before the
    /// work was done. [`Error::Unavailable`] when Redis does not answer within twice the response
    /// timeout; giving back goes on in the background until Redis confirms it or the lease has
    /// ended. [`Error::Rejected`] when Redis answers with an error. [`Error::Shutdown`] outside of
    /// a runtime, when the one that connected has ended: then the lease ends by itself.
    ///
    /// # Cancel safety
    ///
    /// Safe: once called, the permit is given back, in the background if need be.
    ///
    /// # Examples
    ///
    /// `?` is enough where work that lost its permit has failed. Where it has not:
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
        self.end(OnDrop::RETURN)
    }

    /// Consumes the permit for good: its weight comes off the limit, as tokio's `forget` does it.
    ///
    /// # Errors
    ///
    /// As for [`release`](Self::release). After [`Error::Lost`] nothing is consumed.
    ///
    /// # Cancel safety
    ///
    /// Safe: once called, the permit is consumed, in the background if need be.
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
        self.end(OnDrop::Release(ReleaseMode::Forget))
    }

    pub(super) fn end(mut self, how: OnDrop) -> impl Future<Output = Result<(), Error>> {
        // If this future is dropped, or never polled, or Redis does not answer, the drop below does
        // the rest. It is renewed no more, also where nobody polls this.
        self.on_drop = Some(how);
        self.acquisition.end();
        async move {
            let core = &self.core;
            let deadline = Deadline::after(core.context.settings.patience());
            let was_lost = self.let_go();
            // This process knows that without a reply.
            let failed = |operation, error| match was_lost {
                true => self.loss(operation),
                false => error,
            };
            let (was_found, operation) = match how.unless_lost(was_lost) {
                OnDrop::Release(mode) => {
                    let request = Release { acquisition: self.acquisition.clone(), mode };
                    let operation = request.operation();
                    let answer = core.ask(request, deadline).await;
                    let answer = answer.map_err(|error| failed(operation, error))?;
                    // Where a reply was lost, the second answer is "unknown". But the lease had not
                    // ended when the first attempt was made, so it was that one which found the
                    // permit, unless somebody has revoked it.
                    (answer.reply || answer.is_repeated, operation)
                }
                OnDrop::LetExpire => {
                    let answer = core.ask(core.last_lease(&self.acquisition), deadline).await;
                    let answer = answer.map_err(|error| failed("let_expire", error))?;
                    core.part_with(&self.acquisition);
                    (answer.reply, "let_expire")
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

    /// Answers whether it was lost before.
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

    /// Starts the lease anew now. Only needed where automatic renewal is off.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when the permit is lost: it is for good. [`Error::Unavailable`] when Redis
    /// does not answer within twice the response timeout: that is not a loss yet, the permit is
    /// held until [`expires_in`](Self::expires_in) is zero. [`Error::Rejected`],
    /// [`Error::Shutdown`].
    ///
    /// # Cancel safety
    ///
    /// Safe: the lease may have been renewed on the server without being counted here.
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
        // The server, whose clock is another one, may not know of the loss yet.
        if self.is_lost() {
            return Err(self.loss("refresh"));
        }
        let Some(duration) = lease.next_duration(core.settings.lease) else {
            return Ok(());
        };
        let operation = "refresh";
        let request = Refresh { acquisition: self.acquisition.clone(), duration, operation };
        let deadline = Deadline::after(core.context.settings.patience());
        let answer = core.ask(request, deadline).await?;
        if !answer.reply {
            core.lose(&self.acquisition);
        }
        self.lost_unless(answer.reply && lease.renewed(answer.sent, duration), "refresh")
    }

    /// Waits until the permit is lost: at the latest when its lease has ended on this machine's
    /// monotonic clock. Where no runtime is left to measure time (see
    /// [`SemaphoreClient`](crate::SemaphoreClient#runtimes)), it is lost at once.
    ///
    /// # Cancel safety
    ///
    /// Safe: it only watches.
    ///
    /// # Examples
    ///
    /// See [`Permit`].
    pub async fn lost(&self) {
        self.watch().ended().await;
    }

    /// Something to tell subtasks when the permit is held no longer, be it lost or given back. It
    /// can be cloned and sent anywhere, and does not keep the permit.
    ///
    /// # Examples
    ///
    /// See [`PermitWatch`].
    pub fn watch(&self) -> PermitWatch {
        PermitWatch::new(self.lease(), self.core.context.runtime())
    }

    /// Whether the permit is lost. Once it is, it stays so.
    ///
    /// # Examples
    ///
    /// See [`expires_in`](Self::expires_in).
    pub fn is_lost(&self) -> bool {
        self.lease().is_lost()
    }

    /// How long the permit is surely held without another renewal: zero when it is lost. It counts
    /// from before the request was sent, so it never promises more than the server does.
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

    /// A number that is larger than that of every permit granted before, also when the semaphore's
    /// keys have expired in between.
    ///
    /// # Examples
    ///
    /// See [`expires_in`](Self::expires_in).
    pub fn fencing_token(&self) -> u64 {
        self.lease().token
    }

    /// The weight: how much of the limit this permit takes.
    ///
    /// # Examples
    ///
    /// See [`expires_in`](Self::expires_in).
    pub fn weight(&self) -> u32 {
        self.acquisition.weight
    }

    /// The ID under which the server knows the permit, and which no other permit has:
    /// `NOTIFY:CLIENT:WEIGHT:LEASE:NONCE`. The client is the client name of the process, a dot, and
    /// what tells it from others of that name; the lease is in ms.
    ///
    /// # Examples
    ///
    /// See [`expires_in`](Self::expires_in).
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
        // The process that was forked from its holder does not have it.
        if self.core.context.is_forked() {
            return;
        }
        let was_lost = self.let_go();
        match on_drop.unless_lost(was_lost) {
            OnDrop::Release(mode) => self.core.give_back(&self.acquisition, mode),
            OnDrop::LetExpire => self.core.let_expire(&self.acquisition),
        }
    }
}
