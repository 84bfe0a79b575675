//! The errors of this crate. The text of an error contains the finding and advice, in this crate's
//! words. The source of an error is the error of redis-rs or the server. The source is not part of
//! the text.

mod cause;
mod display;
mod kind;
mod outlook;
mod response;
mod rounded;
#[cfg(feature = "tls")]
mod tls;

use std::error::Error as StdError;
use std::time::Duration;

use redis::RedisError;

pub(crate) use cause::{
    IS_REPLICA, NO_NODE, NO_SENTINEL, NO_SLOTS, PRIMARY_DOWN, RUNTIME_ENDED,
    SENTINEL_WANTS_PASSWORD, TOO_LARGE, TWO_PRIMARIES, is_end_of_runtime, lacks_files, lacks_right,
    of as cause_of, of_redis,
};
pub use kind::ConnectErrorKind;
pub(crate) use outlook::{is_full, is_refusal, is_transient};
pub(crate) use response::{is_missing_function, is_unknown_command, says, server_error};
pub(crate) use rounded::Rounded;

/// An error of this crate. A `try_acquire` that finds no free permit is not an error: it returns
/// `None`.
///
/// `Display` prints one line: the finding, and advice. The error of Redis or the network is the
/// [`source`](std::error::Error::source), a [`RedisError`]. The displayed line does not contain the
/// text of the source. Code that has only a chain of errors, such as the chains of anyhow and eyre,
/// finds the [`RedisError`] with `downcast_ref`.
///
/// The source of a [`RedisError`] has the same text as the [`RedisError`]. To print each cause
/// once, print either the error and its `source`, or the `Debug` output of the error.
///
/// # Examples
///
/// ```
/// use std::error::Error as _;
///
/// use redis_semaphore::SemaphoreClient;
/// use redis_semaphore::redis::RedisError;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let error = SemaphoreClient::connect("redis://127.0.0.1:1/").await.unwrap_err();
/// let source = error.source().and_then(|source| source.downcast_ref::<RedisError>());
/// assert!(source.is_some_and(|source| source.is_connection_refusal()));
/// # }
/// ```
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redis_semaphore::Error> {
/// use redis_semaphore::{Error, SemaphoreClient};
///
/// let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap()).await?;
/// let refused = client.semaphore("{no}").limit(1).build().unwrap_err();
/// assert!(matches!(refused, Error::Invalid { what: "name", .. }));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub enum Error {
    /// A value is invalid (a URL, name, limit, lease or weight), or a call is impossible in this
    /// thread, runtime or process.
    ///
    /// The call has changed nothing. If a release fails with this error, the permit is still
    /// released in the background. In a forked process, the permit stays with the parent. A retry
    /// does not help.
    #[non_exhaustive]
    Invalid {
        /// The name of the value.
        what: &'static str,
        /// The problem, and the allowed values.
        reason: String,
    },
    /// No usable connection exists: Redis is unreachable, rejects the user, or lacks a required
    /// feature.
    ///
    /// The builder retries connecting for its
    /// [`connect_timeout`](crate::SemaphoreClientBuilder::connect_timeout) (default 0). A retry may
    /// help if [`is_transient`](Self::is_transient) returns true.
    #[non_exhaustive]
    Connect {
        /// The host and port, or the path of the socket, without the password. With sentinels, a
        /// cluster or several servers, the text may contain a note or several addresses.
        address: String,
        /// The reason, for programs to match on.
        kind: ConnectErrorKind,
        /// The finding and advice, for people to read. Do not match on it.
        reason: String,
        /// The missing permission in the syntax of `ACL SETUSER`: `+zadd`, `~sem:{*`,
        /// `&sem:wake:*`. It is set only with [`ConnectErrorKind::Permission`]. For all permissions
        /// that a user needs, see Permissions in `docs/production.md`.
        right: Option<String>,
        /// The error of Redis or the network, if one exists.
        source: Option<RedisError>,
    },
    /// The weight of the request exceeds the declared limit, and no runtime limit is set. So the
    /// request cannot be granted.
    ///
    /// Nothing was changed. A retry does not help: use a lower weight, or raise the limit.
    #[non_exhaustive]
    TooHeavy {
        /// The name of the semaphore.
        semaphore: String,
        /// The requested weight.
        weight: u32,
        /// The declared limit.
        limit: u32,
    },
    /// The semaphore was built to use the existing limit, and no limit exists.
    ///
    /// No client has used the semaphore, or it was unused for so long that the server removed it. A
    /// client other than this crate may also have declared a limit of 0. Nothing was changed.
    /// Declare a limit from another client, or set a runtime limit, and retry.
    #[non_exhaustive]
    NoLimit {
        /// The name of the semaphore.
        semaphore: String,
    },
    /// The wait took longer than the acquire timeout.
    ///
    /// The request leaves the queue in the background. A retry may help, but its request joins the
    /// end of the queue.
    #[non_exhaustive]
    Timeout {
        /// The name of the semaphore.
        semaphore: String,
        /// The duration of the wait.
        waited: Duration,
        /// The last known position in the queue (1 is the head). In a semaphore with
        /// [groups](crate::Group), the position among the requests of the same group. `None` if no
        /// reply contained a position.
        position: Option<u64>,
        /// Why Redis is unavailable: the server, the finding, and advice. `None` if the last
        /// attempt of a call succeeded, or if no attempt has failed yet.
        outage: Option<String>,
    },
    /// Redis was unavailable for too long: it did not reply, or returned only transient errors.
    ///
    /// The call was retried for `elapsed`, and may have been executed. A permit that may have been
    /// granted is released in the background. A release or `forget` is retried in the background.
    /// If the call changes a limit, read the limit to find out its value. A retry may help.
    #[non_exhaustive]
    Unavailable {
        /// The name of the semaphore.
        semaphore: String,
        /// The operation, such as `acquire`, `release` or `set_limit`.
        operation: &'static str,
        /// The address of the server that was called last, without the password.
        server: String,
        /// The time during which no attempt succeeded.
        elapsed: Duration,
        /// The last failure.
        source: RedisError,
    },
    /// Redis returned a permanent error.
    ///
    /// For example, the semaphore's keys have another type (`SEM_TYPE`) or were written by another
    /// version of the protocol (`SEM_VERSION`), or the server is out of memory. If the source is an
    /// unreadable reply, or if the user lacks a permission, the call may have changed something.
    /// Otherwise, nothing was changed. A retry does not help until the cause is fixed.
    #[non_exhaustive]
    Rejected {
        /// The name of the semaphore.
        semaphore: String,
        /// The operation, such as `acquire`, `release` or `set_limit`.
        operation: &'static str,
        /// The address of the server, without the password.
        server: String,
        /// The error of Redis.
        source: RedisError,
    },
    /// Several granted permits in a row expired before they were usable.
    ///
    /// Each lease expired before the reply arrived, or before the caller's thread processed it. A
    /// retry rarely helps. Use a lease that is longer than a round trip, and longer than a thread
    /// may be busy.
    #[non_exhaustive]
    LeaseTooShort {
        /// The name of the semaphore.
        semaphore: String,
        /// The requested lease.
        lease: Duration,
    },
    /// A permit was granted, but too few replicas acknowledged it in time.
    ///
    /// Replicas are missing or lag (see
    /// [`acknowledged_by`](crate::SemaphoreBuilder::acknowledged_by)). The permit was released. A
    /// retry may help.
    #[non_exhaustive]
    NotAcknowledged {
        /// The name of the semaphore.
        semaphore: String,
        /// The number of replicas that acknowledged the permit.
        replicas: u32,
        /// The required number of replicas.
        wanted: u32,
        /// The time in which replicas could acknowledge the permit.
        within: Duration,
    },
    /// The permit was lost before the operation.
    ///
    /// Its lease had expired, the server had lost its data, the permit was
    /// [revoked](crate::Semaphore::revoke), or another process had adopted it. Other requests may
    /// have been granted since then, so check the work that was done under the permit. A retry does
    /// not help: acquire a new permit.
    #[non_exhaustive]
    Lost {
        /// The name of the semaphore.
        semaphore: String,
        /// The operation: `release`, `forget`, `refresh`, `let_expire`, `adopt`, `acquire_all`, or
        /// `response` of the Tower layer.
        operation: &'static str,
        /// The ID of the permit.
        id: String,
    },
    /// The semaphore was [closed](crate::Semaphore::close) in this process.
    ///
    /// A retry does not help: build a new semaphore to acquire again.
    #[non_exhaustive]
    Closed {
        /// The name of the semaphore.
        semaphore: String,
    },
    /// The client was shut down ([`SemaphoreClient::shutdown`](crate::SemaphoreClient::shutdown)),
    /// the I/O runtime has ended, or a task of the client panicked, for example in a log subscriber.
    ///
    /// A retry does not help: connect again.
    Shutdown,
    /// A script is missing or invalid, or the server's SHA-1 of a script differs.
    ///
    /// This is a mistake in a program or a folder of scripts. A retry does not help.
    Script(String),
    /// A call of the [`ScriptRegistry`](crate::ScriptRegistry) failed: Redis returned an error or
    /// was unreachable.
    ///
    /// The call was not retried. A retry may help if [`is_transient`](Self::is_transient) returns
    /// true.
    Redis(RedisError),
}

impl Error {
    pub(crate) fn invalid(what: &'static str, reason: impl Into<String>) -> Self {
        Self::Invalid { what, reason: reason.into() }
    }

    fn variant(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "Invalid",
            Self::Connect { .. } => "Connect",
            Self::TooHeavy { .. } => "TooHeavy",
            Self::NoLimit { .. } => "NoLimit",
            Self::Timeout { .. } => "Timeout",
            Self::Unavailable { .. } => "Unavailable",
            Self::Rejected { .. } => "Rejected",
            Self::LeaseTooShort { .. } => "LeaseTooShort",
            Self::NotAcknowledged { .. } => "NotAcknowledged",
            Self::Lost { .. } => "Lost",
            Self::Closed { .. } => "Closed",
            Self::Shutdown => "Shutdown",
            Self::Script(_) => "Script",
            Self::Redis(_) => "Redis",
        }
    }

    /// Returns whether the same call may succeed later without any fix.
    ///
    /// Examples are a server that is unavailable or starting, a failover, a long queue, and lagging
    /// replicas. Wait before you retry. Before the crate returns `Unavailable`, it has already
    /// retried the call.
    ///
    /// | Error | Transient |
    /// |---|---|
    /// | [`Unavailable`](Self::Unavailable) | yes |
    /// | [`Timeout`](Self::Timeout) | yes |
    /// | [`NotAcknowledged`](Self::NotAcknowledged) | yes |
    /// | [`Connect`](Self::Connect) | depends on the kind, see below |
    /// | [`Redis`](Self::Redis) | depends on the cause, see below |
    /// | all others | no |
    ///
    /// `Connect` is transient if its kind is `Refused`, `Unreachable`, `TimedOut`, `Closed`,
    /// `NotReady`, `Replica` or `NoPrimary`. `Redis` is transient if the network failed, or the
    /// server is starting, failing over or busy.
    ///
    /// A call that failed with `Unavailable` may have been executed. Calling `acquire` again is
    /// still safe, because a permit that the first call got is released. Calling `add_permits`
    /// again may add the permits twice.
    ///
    /// # Examples
    ///
    /// A program that starts together with its server:
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use redis_semaphore::{Error, SemaphoreClient};
    ///
    /// async fn connect(url: &str) -> Result<SemaphoreClient, Error> {
    ///     for _ in 0..30 {
    ///         match SemaphoreClient::connect(url).await {
    ///             Err(error) if error.is_transient() => eprintln!("{error}"),
    ///             // A wrong password stays wrong.
    ///             done => return done,
    ///         }
    ///         tokio::time::sleep(Duration::from_secs(1)).await;
    ///     }
    ///     SemaphoreClient::connect(url).await
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # connect(&std::env::var("REDIS_URL").unwrap()).await.map(drop)
    /// # }
    /// ```
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::Timeout { .. } | Self::NotAcknowledged { .. } => true,
            Self::Connect { kind, .. } => kind.is_transient(),
            Self::Redis(error) => is_transient(error),
            Self::Invalid { .. }
            | Self::TooHeavy { .. }
            | Self::NoLimit { .. }
            | Self::LeaseTooShort { .. }
            | Self::Rejected { .. }
            | Self::Lost { .. }
            | Self::Closed { .. }
            | Self::Shutdown
            | Self::Script(_) => false,
        }
    }
}

impl Error {
    /// Whether connecting may succeed after retries. The result is true if the server is full, and
    /// false if this process cannot open a connection because it has too many open files.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Connect { source: Some(source), .. } if is_full(source) => true,
            Self::Connect { source: Some(source), .. } if lacks_files(source) => false,
            _ => self.is_transient(),
        }
    }

    /// Whether the call has certainly changed nothing. A full server rejects a script before the
    /// script writes.
    pub(crate) fn has_changed_nothing(&self) -> bool {
        match self {
            Self::TooHeavy { .. } | Self::NoLimit { .. } | Self::Invalid { .. } => true,
            Self::Rejected { source, .. } => {
                source.code().is_some_and(|code| code.starts_with("SEM_")) || says(source, "OOM")
            }
            _ => false,
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Connect { source, .. } => Some(source.as_ref()?),
            Self::Unavailable { source, .. } | Self::Rejected { source, .. } => Some(source),
            Self::Redis(error) => Some(error),
            _ => None,
        }
    }
}

impl From<RedisError> for Error {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}
