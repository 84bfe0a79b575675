//! Why connecting failed, as a program can tell it apart.

/// Why there is no connection that semaphores can use: the `kind` of [`Error::Connect`].
///
/// [`Error::Connect`]: crate::Error::Connect
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use redis_semaphore::{ConnectErrorKind, Error, SemaphoreClient};
///
/// match SemaphoreClient::connect("redis://127.0.0.1:1/").await {
///     Err(Error::Connect { kind: ConnectErrorKind::Refused, address, .. }) => {
///         assert_eq!(address, "127.0.0.1:1");
///     }
///     other => panic!("who listens at port 1? {other:?}"),
/// }
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectErrorKind {
    /// Nothing listens at that address: the server does not run, or runs elsewhere.
    Refused,
    /// The name cannot be resolved, or no network leads there.
    Unreachable,
    /// Nothing answered within the response timeout.
    TimedOut,
    /// The connection was made, and closed by the other side.
    Closed,
    /// The server answers, but cannot serve yet: it loads its data, has as many connections as it
    /// takes, runs a long script, has too few replicas to take writes, or its cluster is down.
    NotReady,
    /// Whatever answers does not speak Redis.
    NotRedis,
    /// The server wants a password, or refuses the one that it got (`NOAUTH`, `WRONGPASS`).
    Authentication,
    /// The user lacks a right, which the field `right` names.
    Permission,
    /// The two sides did not agree on TLS: a certificate is not trusted, or one is missing.
    Tls,
    /// The server is older than Redis 6.2, or than 7.0 where a cluster or functions are wanted.
    TooOld,
    /// The server is a replica, which takes no writes. A failover may be under way.
    Replica,
    /// None of the servers is a primary, or the sentinels know of none. A failover may be under
    /// way.
    NoPrimary,
    /// The server is a node of a cluster where none is wanted, or none where one is wanted.
    Cluster,
    /// The server has functions of our names that are somebody else's, or of another version.
    Functions,
    /// The server refuses something else that semaphores need.
    Unusable,
}

impl ConnectErrorKind {
    /// See [`Error::is_transient`](crate::Error::is_transient).
    pub(crate) fn is_transient(self) -> bool {
        matches!(
            self,
            Self::Refused
                | Self::Unreachable
                | Self::TimedOut
                | Self::Closed
                | Self::NotReady
                | Self::Replica
                | Self::NoPrimary
        )
    }
}
