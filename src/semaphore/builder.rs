//! The settings of a semaphore as users give them, checked when it is built.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::context::Context;
use crate::error::Error;
use crate::protocol::check_name;
use crate::protocol::id::MAX_TIME;
use crate::semaphore::Semaphore;
use crate::semaphore::core::Core;
use crate::semaphore::maintenance;
use crate::semaphore::settings::{Acknowledgement, Limit, Settings};

const DEFAULT_LEASE: Duration = Duration::from_secs(30);
const SHORTEST_LEASE: Duration = Duration::from_millis(10);

/// Says how this process uses a semaphore. From
/// [`SemaphoreClient::semaphore`](crate::SemaphoreClient::semaphore).
///
/// # Examples
///
/// ```
/// # use std::time::Duration;
/// # use redis_semaphore::{Error, SemaphoreClient};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
/// let semaphore = client
///     .semaphore("report-printer")
///     .limit(2)
///     .lease(Duration::from_secs(60))
///     .max_hold(Duration::from_secs(3600))
///     .acquire_timeout(Duration::from_secs(10))
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "build() makes the semaphore"]
pub struct SemaphoreBuilder {
    context: Arc<Context>,
    name: String,
    limit: Option<u32>,
    initial_permits: Option<u32>,
    existing_limit: bool,
    lease: Duration,
    auto_refresh: bool,
    max_hold: Option<Duration>,
    let_expire_on_drop: bool,
    acquire_timeout: Option<Duration>,
    acknowledgement: Option<Acknowledgement>,
}

impl SemaphoreBuilder {
    pub(crate) fn new(context: Arc<Context>, name: String) -> Self {
        Self {
            context,
            name,
            limit: None,
            initial_permits: None,
            existing_limit: false,
            lease: DEFAULT_LEASE,
            auto_refresh: true,
            max_hold: None,
            let_expire_on_drop: false,
            acquire_timeout: None,
            acknowledgement: None,
        }
    }

    /// The weight that may be held at once: at least 1. Each process declares it when it first
    /// acquires the semaphore; where processes differ, the newest declaration is in force, and a
    /// warning is logged. It is at most 4,294,967,295: count what does not fit in a larger unit, such
    /// as MiB in place of bytes.
    ///
    /// # Examples
    ///
    /// See [`SemaphoreBuilder`].
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Makes it a signalling semaphore: it starts with this many permits (0 too), and
    /// [`add_permits`](Semaphore::add_permits) and [`Permit::forget`](crate::Permit::forget) add
    /// and consume. The number is used when the semaphore is new; it is kept until
    /// [`clear_limit`](Semaphore::clear_limit).
    ///
    /// # Examples
    ///
    /// See [`Semaphore::add_permits`].
    pub fn initial_permits(mut self, permits: u32) -> Self {
        self.initial_permits = Some(permits);
        self
    }

    /// Brings no limit: the one in force counts, as others declared it, or as it was set at run
    /// time. For what does not know the limit and is not to change it: a tool for operators, or a
    /// job beside the service whose limit it is.
    ///
    /// While there is none, acquiring fails with [`Error::NoLimit`]; so does a wait when the server
    /// comes back empty and nobody else has declared one by then. [`limit`](Semaphore::limit) and
    /// what [`set_limit`](Semaphore::set_limit) answers are 0 then.
    ///
    /// # Examples
    ///
    /// ```
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
    /// # let name = uuid::Uuid::new_v4().to_string();
    /// let job = client.semaphore(&name).existing_limit().build()?;
    /// assert!(matches!(job.acquire().await, Err(Error::NoLimit { .. })));
    ///
    /// let service = client.semaphore(&name).limit(3).build()?;
    /// service.acquire().await?.release().await?;
    /// job.acquire_many(3).await?.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn existing_limit(mut self) -> Self {
        self.existing_limit = true;
        self
    }

    /// For how long a permit is held without renewal: 10 ms to 7 days, default 30 s. A crashed
    /// holder blocks its permit for this long; Redis may be away for two thirds of it. An attempt to
    /// renew it has a sixth of it: let that be some round trips.
    ///
    /// # Examples
    ///
    /// See [`SemaphoreBuilder`].
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Whether permits are renewed in the background, every third of the lease. Default: on.
    ///
    /// # Examples
    ///
    /// See [`Permit::refresh`](crate::Permit::refresh).
    pub fn auto_refresh(mut self, auto_refresh: bool) -> Self {
        self.auto_refresh = auto_refresh;
        self
    }

    /// The longest time for which a permit is held, however often it is renewed; then it is lost. A
    /// guard against work that hangs. At least 10 ms; default: without end.
    ///
    /// It bounds what one process holds: a permit that [moves](crate::Permit::detach) to another
    /// is held from its adoption on for as long as the adopter's setting says, and without end where
    /// that has none. Where a bound is for the whole way, send the moment at which it ends along with
    /// the permit, and [release](crate::Permit::release) it then.
    ///
    /// # Examples
    ///
    /// See [`SemaphoreBuilder`].
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// Whether a permit that is dropped is [left](crate::Permit::let_expire) instead of given back: when
    /// its work panics or is cancelled, too, and in a shutdown. Default: off. It makes the semaphore
    /// count starts: at most [`limit`](Self::limit) of them in any window as long as
    /// [`lease`](Self::lease).
    ///
    /// What was never handed out, such as the permit of a wait that was dropped, is given back.
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
    /// # async fn send_request() -> impl Future<Output = ()> {
    /// #     std::future::ready(())
    /// # }
    /// // At most 100 calls start within any 60 s, over all processes.
    /// let starts = client
    ///     .semaphore(name)
    ///     .limit(100)
    ///     .lease(Duration::from_secs(60))
    ///     .let_expire_on_drop(true)
    ///     .build()?;
    /// let permit = starts.acquire().await?;
    /// let answer = send_request().await; // It has started.
    /// permit.let_expire().await?;
    /// answer.await;
    /// # assert_eq!(starts.inspect().await?.held, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn let_expire_on_drop(mut self, let_expire_on_drop: bool) -> Self {
        self.let_expire_on_drop = let_expire_on_drop;
        self
    }

    /// How long [`acquire`](Semaphore::acquire) waits before it answers [`Error::Timeout`].
    /// Default: without end.
    ///
    /// # Examples
    ///
    /// See [`SemaphoreBuilder`].
    pub fn acquire_timeout(mut self, timeout: Duration) -> Self {
        self.acquire_timeout = Some(timeout);
        self
    }

    /// Hands a permit out only when so many replicas have it (at least 1), which may take so long
    /// (1 ms to half of the lease, or of [`max_hold`](Self::max_hold) where that is shorter).
    /// Otherwise it is given back, and the acquire fails with [`Error::NotAcknowledged`].
    /// Default: off.
    ///
    /// A failover to one of these replicas then knows the permit, where it might have forgotten it,
    /// and let in one too many. It is no full guarantee: a replica that did not have it may be
    /// promoted all the same, and renewals are not waited for. It costs two more round trips, and a
    /// connection for each such semaphore, on which others are not held up.
    ///
    /// While too few replicas follow, every acquire of this semaphore takes the whole time and fails,
    /// one after the other: the permit goes to the next in the queue only when it is given back. So with
    /// ten waiters, a limit of 1 and 300 ms the last one fails after 3 s, and a waiter behind them that
    /// wants no replicas waits for as long. Choose a time that a queue can bear, and an
    /// [`acquire_timeout`](Self::acquire_timeout).
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
    /// let semaphore = client
    ///     .semaphore("payments")
    ///     .limit(1)
    ///     .acknowledged_by(1, Duration::from_millis(100))
    ///     .build()?;
    /// match semaphore.acquire().await {
    ///     Ok(permit) => permit.release().await?,
    ///     // There may be no replica here.
    ///     Err(error) => assert!(matches!(error, Error::NotAcknowledged { wanted: 1, .. })),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn acknowledged_by(mut self, replicas: u32, within: Duration) -> Self {
        self.acknowledgement = Some(Acknowledgement { replicas, within });
        self
    }

    /// Makes the semaphore. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] when a name, limit or duration is out of range, or when not exactly one
    /// of [`limit`](Self::limit), [`initial_permits`](Self::initial_permits) and
    /// [`existing_limit`](Self::existing_limit) is given.
    ///
    /// # Examples
    ///
    /// See [`SemaphoreBuilder`].
    pub fn build(self) -> Result<Semaphore, Error> {
        check_name("name", &self.name)?;
        let limit = self.checked_limit()?;
        if self.lease < SHORTEST_LEASE || self.lease > MAX_TIME {
            let reason = format!("must be 10 ms to 7 days, not {:?}", self.lease);
            return Err(Error::invalid("lease", reason));
        }
        if let Some(max_hold) = self.max_hold.filter(|max_hold| *max_hold < SHORTEST_LEASE) {
            let reason = format!("must be at least 10 ms, not {max_hold:?}");
            return Err(Error::invalid("max_hold", reason));
        }
        let settings = Settings {
            limit,
            lease: self.lease,
            auto_refresh: self.auto_refresh,
            max_hold: self.max_hold,
            let_expire_on_drop: self.let_expire_on_drop,
            acquire_timeout: self.acquire_timeout,
            acknowledgement: self.acknowledgement,
        };
        settings.check_acknowledgement()?;
        let core = Core::new(self.name, settings, self.context, maintenance::start);
        Ok(Semaphore::new(core))
    }

    fn checked_limit(&self) -> Result<Limit, Error> {
        let given = [
            self.limit.map(Limit::Declared),
            self.initial_permits.map(Limit::Initial),
            self.existing_limit.then_some(Limit::Existing),
        ];
        let mut given = given.into_iter().flatten();
        let found = match (given.next(), given.next()) {
            (Some(Limit::Declared(0)), None) => {
                let reason = "must be at least 1; set_limit(0) pauses a semaphore";
                return Err(Error::invalid("limit", reason));
            }
            (Some(limit), None) => return Ok(limit),
            (Some(_), Some(_)) => "more than one was",
            (None, _) => "none was",
        };
        let reason = format!(
            "must have one of limit(), initial_permits() and existing_limit(), and {found} given"
        );
        Err(Error::invalid("limit", reason))
    }
}

impl fmt::Debug for SemaphoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SemaphoreBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}
