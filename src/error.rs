use std::time::Duration;

use redis::RedisError;

/// What can go wrong. "Did not get it" is not among them: a try that finds no room answers `None`,
/// and the release of a permit that was lost answers `false`.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redis_semaphore::Error> {
/// use redis_semaphore::{Error, Semaphores};
///
/// let semaphores = Semaphores::connect(&std::env::var("REDIS_URL").unwrap()).await?;
/// let refused = semaphores.semaphore("{no}").limit(1).build().unwrap_err();
/// assert!(matches!(refused, Error::Invalid { what: "name", .. }));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value that can never work (a name, a limit, a lease, a weight). Nothing was sent.
    #[error("{what}: {reason}")]
    Invalid {
        /// What the value is for.
        what: &'static str,
        /// What is wrong with it, and what is allowed.
        reason: String,
    },
    /// Redis could not be reached, or does not let us in. Nothing works until that is mended.
    #[error("cannot connect to Redis at {address}: {reason}")]
    Connect {
        /// Host and port, or the path of the socket; without the password.
        address: String,
        /// What Redis or the network said.
        reason: String,
    },
    /// The server cannot run the scripts: it is older than Redis 6.2, or a replica. Or, where functions
    /// are called, it has others of the same names.
    #[error("the Redis server cannot be used: {0}")]
    Unsupported(String),
    /// The user of the connection may not run a command that the scripts need, or not on the keys
    /// and channels that begin with the prefix. The page `docs/protocol.md` has all rights that a
    /// user needs, under "Permissions".
    #[error("the Redis user lacks the right {right}: {command} was refused ({reason})")]
    Permission {
        /// As `ACL SETUSER` takes it: `+zadd`, `~sem:{*`, `&sem:wake:*`.
        right: String,
        /// The command that was refused.
        command: String,
        /// What Redis said.
        reason: String,
    },
    /// The request weighs more than the limit, so it could never be granted. Ask for less, or raise
    /// the limit.
    #[error("semaphore {semaphore}: a weight of {weight} can never fit the limit of {limit}")]
    TooHeavy {
        /// The name of the semaphore.
        semaphore: String,
        /// What was asked for.
        weight: u32,
        /// The declared limit.
        limit: u32,
    },
    /// The wait took longer than the acquire timeout. The request has left the queue.
    #[error(
        "semaphore {semaphore}: no permit within {waited:?}, {}",
        position.map_or("the queue was not reached".to_owned(), |p| format!("last at position {p}"))
    )]
    Timeout {
        /// The name of the semaphore.
        semaphore: String,
        /// How long the wait took.
        waited: Duration,
        /// The last known position in the queue, where 1 is the head.
        position: Option<u64>,
    },
    /// Redis gave no answer for too long. The call may have been served all the same. A permit that
    /// may have been granted, or that should have been given back or consumed, is seen to in the
    /// background; whether a limit was changed can only be looked up.
    #[error(
        "semaphore {semaphore}: {operation} had no answer from Redis for {elapsed:?}: {source}"
    )]
    Unavailable {
        /// The name of the semaphore.
        semaphore: String,
        /// What was tried.
        operation: &'static str,
        /// For how long.
        elapsed: Duration,
        /// The last failure.
        source: RedisError,
    },
    /// Redis answered with an error that will not pass by itself: the keys of the semaphore hold
    /// something else (`SEM_TYPE`), another version of the protocol wrote them (`SEM_VERSION`), the
    /// server is out of memory. Nothing was changed.
    #[error("semaphore {semaphore}: {operation} was refused: {source}")]
    Refused {
        /// The name of the semaphore.
        semaphore: String,
        /// What was tried.
        operation: &'static str,
        /// What Redis said.
        source: RedisError,
    },
    /// A permit was granted, but too few replicas had it in time, so it was given back: see
    /// [`acknowledged_by`](crate::SemaphoreBuilder::acknowledged_by). Replicas are missing, or lag.
    #[error(
        "semaphore {semaphore}: {replicas} of the {wanted} replicas wanted had the permit within \
         {within:?}; it was given back"
    )]
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
    /// [`Semaphores::shutdown`](crate::Semaphores::shutdown) was called, or its runtime has ended.
    #[error("the semaphores were shut down")]
    Shutdown,
    /// A script is missing or broken, or the server holds another text under its name. This is a
    /// mistake in a program or in a folder of scripts, not a passing condition.
    #[error("script: {0}")]
    Script(String),
    /// An error of the [`ScriptRegistry`](crate::ScriptRegistry): Redis answered with an error, or
    /// could not be reached.
    #[error(transparent)]
    Redis(#[from] RedisError),
}

impl Error {
    pub(crate) fn invalid(what: &'static str, reason: impl Into<String>) -> Self {
        Self::Invalid { what, reason: reason.into() }
    }
}
