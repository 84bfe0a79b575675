//! What can go wrong. A text says what was found and what to do, in words of our own. What redis-rs
//! or the server said is the source of an error, and is not part of that text.

mod answer;
mod cause;
mod kind;
mod outlook;
mod rounded;
#[cfg(feature = "tls")]
mod tls;

use std::error::Error as StdError;
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use redis::RedisError;

pub(crate) use answer::{is_missing_function, says};
pub(crate) use cause::{TOO_LARGE, lacks_files, lacks_right, of as cause_of};
pub use kind::ConnectErrorKind;
pub(crate) use outlook::{is_full, is_refusal, is_transient};
pub(crate) use rounded::Rounded;

/// Of each text so many characters are printed for debugging: a server may echo a megabyte.
const MAX_PRINTED: usize = 400;

/// What can go wrong. "Did not get it" is not among them: a try that finds no permit
/// free answers `None`.
///
/// Displayed, it is one line: what was found, and what to do. What Redis or the network said is its
/// [`source`](std::error::Error::source), a [`RedisError`], and is in that text only. So code that
/// has only a chain of errors, as the crates anyhow and eyre make it, finds the [`RedisError`] in
/// it with `downcast_ref`. (The source of a [`RedisError`] has the same text as the [`RedisError`].
/// To print each cause once, print the error and its `source`, or its `Debug`.)
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
    /// A value that can never work (a URL, a name, a limit, a lease, a weight), or a thread,
    /// runtime or process in which a call cannot. Nothing was sent for it; but a permit whose
    /// release is refused so is given back all the same, in the background (in a forked process: it
    /// stays the parent's).
    #[non_exhaustive]
    Invalid {
        /// What the value is for.
        what: &'static str,
        /// What is wrong with it, and what is allowed.
        reason: String,
    },
    /// There is no connection that semaphores can use: Redis cannot be reached, does not let us in,
    /// or cannot do what is needed.
    #[non_exhaustive]
    Connect {
        /// Host and port, or the path of the socket; without the password.
        address: String,
        /// Why, to match on.
        kind: ConnectErrorKind,
        /// What was found, and what to do; to read, not to match on.
        reason: String,
        /// The right that the user lacks, as `ACL SETUSER` takes it: `+zadd`, `~sem:{*`,
        /// `&sem:wake:*`. Only with [`ConnectErrorKind::Permission`]. The page `docs/protocol.md`
        /// has all rights that a user needs, under "Permissions".
        right: Option<String>,
        /// What Redis or the network said, where that is more.
        source: Option<RedisError>,
    },
    /// The request weighs more than the limit, so it could never be granted. Ask for less, or raise
    /// the limit.
    #[non_exhaustive]
    TooHeavy {
        /// The name of the semaphore.
        semaphore: String,
        /// What was asked for.
        weight: u32,
        /// The declared limit.
        limit: u32,
    },
    /// The semaphore was built to take the limit in force, and there is none: nobody has used it
    /// yet, or not for so long that the server has forgotten it; or somebody declared one of 0,
    /// which this crate does not. Have somebody declare one, or set one at run time.
    #[non_exhaustive]
    NoLimit {
        /// The name of the semaphore.
        semaphore: String,
    },
    /// The wait took longer than the acquire timeout. The request leaves the queue, in the
    /// background.
    #[non_exhaustive]
    Timeout {
        /// The name of the semaphore.
        semaphore: String,
        /// How long the wait took.
        waited: Duration,
        /// The last known position in the queue, where 1 is the head; `None` where no answer told
        /// one.
        position: Option<u64>,
    },
    /// Redis gave no answer for too long. The call may have been served all the same. A permit that
    /// may have been granted, or that should have been given back or consumed, is seen to in the
    /// background; whether a limit was changed can only be looked up.
    #[non_exhaustive]
    Unavailable {
        /// The name of the semaphore.
        semaphore: String,
        /// What was called: `acquire`, `release`, `set_limit`.
        operation: &'static str,
        /// The address of the server that was called last; without the password.
        server: String,
        /// For how long.
        elapsed: Duration,
        /// The last failure.
        source: RedisError,
    },
    /// Redis answered with an error that will not pass by itself: the keys of the semaphore hold
    /// something else (`SEM_TYPE`), another version of the protocol wrote them (`SEM_VERSION`), the
    /// server is out of memory. Nothing was changed, unless the source is an answer that cannot be
    /// read, or the user has lost a right since it connected.
    #[non_exhaustive]
    Rejected {
        /// The name of the semaphore.
        semaphore: String,
        /// What was called: `acquire`, `release`, `set_limit`.
        operation: &'static str,
        /// The address of the server; without the password.
        server: String,
        /// What Redis said.
        source: RedisError,
    },
    /// Permits were granted several times in a row, and each time their lease had ended before the
    /// answer was here, or before the caller's thread got to it. A lease must be longer than a
    /// round trip, and than what a thread may be busy with.
    #[non_exhaustive]
    LeaseTooShort {
        /// The name of the semaphore.
        semaphore: String,
        /// The lease that was asked for.
        lease: Duration,
    },
    /// A permit was granted, but too few replicas had it in time, so it was given back: see
    /// [`acknowledged_by`](crate::SemaphoreBuilder::acknowledged_by). Replicas are missing, or lag.
    #[non_exhaustive]
    NotAcknowledged {
        /// The name of the semaphore.
        semaphore: String,
        /// How many had it.
        replicas: u32,
        /// How many were to have it.
        wanted: u32,
        /// How long they had.
        within: Duration,
    },
    /// The permit was lost before it was released, consumed, refreshed, left or adopted: its lease
    /// had ended, the server had forgotten it, somebody has [revoked](crate::Semaphore::revoke) it,
    /// or another process has adopted it. Somebody else may have been let in meanwhile, so what was
    /// done under it may have to be looked at.
    #[non_exhaustive]
    Lost {
        /// The name of the semaphore.
        semaphore: String,
        /// What was called: `release`, `forget`, `refresh`, `let_expire`, `adopt`, `acquire_all`,
        /// or `response` of the tower layer.
        operation: &'static str,
        /// The permit's id.
        id: String,
    },
    /// [`Semaphore::close`](crate::Semaphore::close) was called: this process acquires no more by
    /// this semaphore.
    #[non_exhaustive]
    Closed {
        /// The name of the semaphore.
        semaphore: String,
    },
    /// [`SemaphoreClient::shutdown`](crate::SemaphoreClient::shutdown) was called, or its runtime
    /// has ended.
    Shutdown,
    /// A script is missing or broken, or the server holds another text under its name. This is a
    /// mistake in a program or in a folder of scripts, not a passing condition.
    Script(String),
    /// An error of the [`ScriptRegistry`](crate::ScriptRegistry): Redis answered with an error, or
    /// could not be reached.
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

    /// Whether the same call may succeed a moment later without anybody mending anything: a server
    /// that is away or starts, a failover, a queue that was too long, replicas that lag. Whoever
    /// calls again should pause before: the crate itself has tried for as long as it was told to.
    ///
    /// | error | transient |
    /// | --- | --- |
    /// | [`Unavailable`](Self::Unavailable), [`Timeout`](Self::Timeout), [`NotAcknowledged`](Self::NotAcknowledged) | yes |
    /// | [`Connect`](Self::Connect) | where the kind is `Refused`, `Unreachable`, `TimedOut`, `Closed`, `NotReady`, `Replica` or `NoPrimary` |
    /// | [`Redis`](Self::Redis) | where the network failed, or the server starts, fails over or is busy |
    /// | all others | no |
    ///
    /// A call that failed with `Unavailable` may have been served. Calling `acquire` again is safe
    /// all the same, as what it may have got is given back; adding permits again may add them
    /// twice.
    ///
    /// # Examples
    ///
    /// A program that is started together with its server:
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
    /// Whether a client that keeps on connecting may get in: also if the server has no room yet,
    /// but not if this process may not open a connection.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Connect { source: Some(source), .. } if is_full(source) => true,
            Self::Connect { source: Some(source), .. } if lacks_files(source) => false,
            _ => self.is_transient(),
        }
    }

    /// Whether a script has refused a call before it changed anything. (On a full server that is
    /// its first command.)
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

impl Display for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid { what, reason } => write!(f, "{what}: {reason}"),
            Self::Connect { address, reason, .. } => {
                write!(f, "cannot connect to Redis at {address}: {reason}")
            }
            Self::TooHeavy { semaphore, weight, limit } => write!(
                f,
                "semaphore {semaphore}: a weight of {weight} can never fit the limit of {limit}: ask \
                 for less, or raise the limit"
            ),
            Self::NoLimit { semaphore } => write!(
                f,
                "semaphore {semaphore}: no limit is in force, and none was brought: declare one, or \
                 set one at run time"
            ),
            Self::LeaseTooShort { semaphore, lease } => write!(
                f,
                "semaphore {semaphore}: permits were granted, but their lease of {} had ended each \
                 time before the answer was here: ask for a longer lease",
                Rounded(*lease)
            ),
            Self::Timeout { semaphore, waited, position } => {
                write!(f, "semaphore {semaphore}: no permit within {}, ", Rounded(*waited))?;
                match position {
                    Some(position) => write!(f, "last at position {position} of the queue")?,
                    None => f.write_str("and the queue was not reached")?,
                }
                f.write_str(": call again, or allow more time")
            }
            Self::Unavailable { semaphore, operation, server, elapsed, source } => {
                let (elapsed, cause) = (Rounded(*elapsed), cause_of(source));
                let what = match is_refusal(source) {
                    true => "was not served by Redis",
                    false => "had no answer from Redis",
                };
                write!(
                    f,
                    "semaphore {semaphore}: {operation} {what} for {elapsed} ({server}: {}): {}",
                    cause.found, cause.advice
                )
            }
            Self::Rejected { semaphore, operation, server, source } => {
                let cause = cause_of(source);
                write!(
                    f,
                    "semaphore {semaphore}: {operation} was refused ({server}: {}): {}",
                    cause.found, cause.advice
                )
            }
            Self::NotAcknowledged { semaphore, replicas, wanted, within } => write!(
                f,
                "semaphore {semaphore}: {replicas} of the {wanted} replicas wanted had the permit \
                 within {}, so it was given back: see whether they follow (INFO replication), or give \
                 them more time",
                Rounded(*within)
            ),
            Self::Lost { semaphore, operation, id } => write!(
                f,
                "semaphore {semaphore}: {operation} came too late, the permit {id} was lost before, and \
                 others may have been let in: see to what was done since, or make the lease longer"
            ),
            Self::Closed { semaphore } => {
                write!(f, "semaphore {semaphore}: it was closed: build it anew to acquire again")
            }
            Self::Shutdown => f.write_str(
                "the semaphores were shut down, or the runtime in which they were connected has ended: \
                 connect anew, in one that goes on running",
            ),
            Self::Script(what) => write!(f, "script: {what}"),
            Self::Redis(error) => f.write_str(&cause_of(error).reason()),
        }
    }
}

/// The variant, what is displayed, and what Redis or the network said.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut printed = f.debug_tuple(self.variant());
        printed.field(&format_args!("{:.MAX_PRINTED$}", self.to_string()));
        // What has no source of its own is told by our IDs.
        if let Some(source) = self.source().and_then(StdError::source) {
            printed.field(&format_args!("{:.MAX_PRINTED$}", source.to_string()));
        }
        printed.finish()
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
