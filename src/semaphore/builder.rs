//! Builds a semaphore, and checks its settings.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::context::Context;
use crate::error::Error;
use crate::protocol::check_name;
use crate::protocol::id::MAX_TIME;
use crate::semaphore::Semaphore;
use crate::semaphore::core::Core;
use crate::semaphore::settings::{Acknowledgement, GroupDefaults, Limit, Settings};

const DEFAULT_LEASE: Duration = Duration::from_secs(30);
const SHORTEST_LEASE: Duration = Duration::from_millis(10);

/// Configures a [`Semaphore`]. Created by
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
    /// All settings except the limit, which `build` sets.
    settings: Settings,
}

impl SemaphoreBuilder {
    pub(crate) fn new(context: Arc<Context>, name: String) -> Self {
        Self {
            context,
            name,
            limit: None,
            initial_permits: None,
            existing_limit: false,
            settings: Settings {
                limit: Limit::Existing,
                lease: DEFAULT_LEASE,
                auto_refresh: true,
                max_hold: None,
                let_expire_on_drop: false,
                acquire_timeout: None,
                acknowledgement: None,
                group_defaults: GroupDefaults::default(),
            },
        }
    }

    /// Sets the limit: the total weight of the permits that may be held at the same time. Range: 1
    /// to 4,294,967,295. If a quantity does not fit, count it in a larger unit, such as MiB instead
    /// of bytes.
    ///
    /// The first acquire or limit change of each semaphore that is built declares the limit. If
    /// processes declare different limits, the most recent declaration applies to all of them, and
    /// a warning is logged.
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Makes this a signaling semaphore. `permits` is the number of initial permits, and may be 0.
    /// [`add_permits`](Semaphore::add_permits) adds permits, and
    /// [`Permit::forget`](crate::Permit::forget) uses them up. The number of initial permits
    /// becomes the runtime limit only if no limit exists. The server keeps the runtime limit until
    /// [`clear_limit`](Semaphore::clear_limit).
    pub fn initial_permits(mut self, permits: u32) -> Self {
        self.initial_permits = Some(permits);
        self
    }

    /// Declares no limit, and uses the existing limit: the limit that other processes declared, or
    /// the runtime limit. Use this setting in processes that do not know the limit and must not
    /// change it, such as operator tools and batch jobs.
    ///
    /// If no limit exists, `acquire` returns [`Error::NoLimit`]. A wait returns this error, too, if
    /// the server restarts without its data and no other process has declared a limit since. In
    /// both cases, [`limit`](Semaphore::limit) and [`set_limit`](Semaphore::set_limit) return 0.
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

    /// Sets the lease: how long a permit stays valid without being refreshed. Default: 30 s; range:
    /// 10 ms to 7 days.
    ///
    /// If a holder crashes, its permit stays taken for up to one lease. Holders survive a Redis
    /// outage of almost two thirds of the lease. An automatic refresh without a reply fails after a
    /// sixth of the lease, and is repeated. A sixth of the lease must be several round trips long.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// Sets whether permits are refreshed in the background, at intervals of a third of the lease.
    /// Default: on.
    pub fn auto_refresh(mut self, auto_refresh: bool) -> Self {
        self.settings.auto_refresh = auto_refresh;
        self
    }

    /// Sets the longest time for which a permit is held, however often it is refreshed. Default: no
    /// bound; minimum: 10 ms. A permit that reaches the bound is lost. The bound protects against
    /// work that hangs.
    ///
    /// The bound applies to one process. If a permit is [detached](crate::Permit::detach) and
    /// another process adopts it, the setting of the adopting process applies from then on. If a
    /// bound must hold across processes, choose a time at which the hold must end, and send this
    /// time together with the permit. The adopting process must [release](crate::Permit::release)
    /// the permit at this time.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.settings.max_hold = Some(max_hold);
        self
    }

    /// Sets whether dropping a permit [lets it expire](crate::Permit::let_expire) instead of
    /// releasing it. The setting also applies to drops that are caused by a panic, a canceled task
    /// or a shutdown. Default: off.
    ///
    /// With this setting, the semaphore limits starts: in any window that is as long as the
    /// [`lease`](Self::lease), or as [`max_hold`](Self::max_hold) if `max_hold` is shorter, work
    /// starts at most [`limit`](Self::limit) times.
    /// [`Permit::let_expire`](crate::Permit::let_expire) lists the conditions. Permits that never
    /// reached the caller, such as the permit of a dropped wait, are released.
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
    /// let answer = send_request().await; // The request has started.
    /// permit.let_expire().await?;
    /// answer.await;
    /// # assert_eq!(starts.inspect().await?.held, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn let_expire_on_drop(mut self, let_expire_on_drop: bool) -> Self {
        self.settings.let_expire_on_drop = let_expire_on_drop;
        self
    }

    /// Sets how long [`acquire`](Semaphore::acquire) waits before it returns [`Error::Timeout`].
    /// Default: no timeout.
    pub fn acquire_timeout(mut self, timeout: Duration) -> Self {
        self.settings.acquire_timeout = Some(timeout);
        self
    }

    /// Sets the share of groups for which [`Group::share`](crate::Group::share) is not called.
    /// Default: 1; range: 1 to 1000.
    pub fn group_share(mut self, share: u16) -> Self {
        self.settings.group_defaults.share = share;
        self
    }

    /// Sets the cap of groups for which [`Group::cap`](crate::Group::cap) is not called. Default:
    /// no cap; range: 1 to 4,294,967,295. Requests without a group have no cap.
    pub fn group_cap(mut self, cap: u32) -> Self {
        self.settings.group_defaults.cap = Some(cap);
        self
    }

    /// Requires `replicas` replicas to acknowledge each permit within the time `within`. Otherwise
    /// the permit is released, and the acquire returns [`Error::NotAcknowledged`]. Default: off.
    /// Ranges: `replicas` is at least 1; `within` is at least 1 ms, and at most half of the lease.
    /// If [`max_hold`](Self::max_hold) is shorter than the lease, `within` is at most half of
    /// `max_hold`.
    ///
    /// If one of these replicas is promoted, it knows the permit, and so does not grant the same
    /// weight again. The setting is not a full guarantee: a replica that has not acknowledged the
    /// permit may still be promoted, and refreshes are not acknowledged. Each grant takes two more
    /// round trips. Each semaphore with this setting uses one more connection.
    ///
    /// While too few replicas follow the primary, each acquire fails when `within` has passed since
    /// its grant, or up to twice that time: the `WAIT` commands of a semaphore share a connection.
    /// Waiters fail one after the other, because the next waiter is granted a permit only after the
    /// failed waiter's release. With ten waiters, a limit of 1 and a `within` of 300 ms, the last
    /// waiter fails after at least 3 s. A waiter behind these ten waiters also waits for 3 s, even if its process does not use this setting. Choose a short `within`, and set an
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
    ///     // The server of this example may have no replica.
    ///     Err(error) => assert!(matches!(error, Error::NotAcknowledged { wanted: 1, .. })),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn acknowledged_by(mut self, replicas: u32, within: Duration) -> Self {
        self.settings.acknowledgement = Some(Acknowledgement { replicas, within });
        self
    }

    /// Builds the semaphore. Sends nothing yet.
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`] if the name is invalid, or a setting is out of range.
    /// - [`Error::Invalid`] unless exactly one of [`limit`](Self::limit),
    ///   [`initial_permits`](Self::initial_permits) and [`existing_limit`](Self::existing_limit) is
    ///   set.
    pub fn build(self) -> Result<Semaphore, Error> {
        check_name("name", &self.name)?;
        let settings = Settings { limit: self.checked_limit()?, ..self.settings };
        let lease = settings.lease;
        if lease < SHORTEST_LEASE || lease > MAX_TIME {
            let reason = format!("must be 10 ms to 7 days, not {lease:?}");
            return Err(Error::invalid("lease", reason));
        }
        if let Some(max_hold) = settings.max_hold.filter(|max_hold| *max_hold < SHORTEST_LEASE) {
            let reason = format!("must be at least 10 ms, not {max_hold:?}");
            return Err(Error::invalid("max_hold", reason));
        }
        settings.check_acknowledgement()?;
        settings.group_defaults.check()?;
        let core = Core::new(self.name, settings, self.context);
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
            "must have exactly one of limit(), initial_permits() and existing_limit(); {found} \
             given"
        );
        Err(Error::invalid("limit", reason))
    }
}

impl fmt::Debug for SemaphoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SemaphoreBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}
