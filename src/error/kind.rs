//! The reasons why connecting failed, for programs to match on.

/// The reason why no usable connection exists: the `kind` of [`Error::Connect`].
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
///     other => panic!("a server listens at port 1: {other:?}"),
/// }
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectErrorKind {
    /// No server listens at the address: the server is not running, or uses another address.
    Refused,
    /// The connection fails for another reason: for example, the name cannot be resolved, no
    /// network route exists, or this process has too many open files.
    Unreachable,
    /// No reply arrived within the response timeout, or no connection was made within the connect
    /// timeout.
    TimedOut,
    /// The server closed the connection after it was made.
    Closed,
    /// The server replies, but cannot serve requests yet. It is loading its data, has no free
    /// connections, or runs a long script. It may also have too few replicas to accept writes, or
    /// belong to a cluster that is down.
    NotReady,
    /// The server does not speak the Redis protocol, or is a sentinel instead of a Redis server.
    NotRedis,
    /// The server requires a password, or rejected the given password (`NOAUTH`, `WRONGPASS`). This
    /// kind also includes a failed credentials provider, and a server that accepts only local
    /// connections (`DENIED`).
    Authentication,
    /// The user lacks a permission, which the field `right` contains.
    Permission,
    /// The TLS handshake failed, for example because a certificate is missing or not trusted.
    Tls,
    /// The server is older than Redis 6.2, or older than 7.0 if a cluster or functions are used.
    TooOld,
    /// The server is a replica, which rejects writes. A failover may be in progress.
    Replica,
    /// None of the servers is a primary, or the sentinels know no primary. A failover may be in
    /// progress.
    NoPrimary,
    /// The server is a cluster node but a single server was expected, or the opposite.
    Cluster,
    /// The server's functions with this crate's names are foreign, or belong to another version.
    Functions,
    /// The server rejects something else that semaphores need.
    Unusable,
}

impl ConnectErrorKind {
    /// Whether the server accepted the connection, but cannot be used.
    pub(super) fn is_connected(self) -> bool {
        use ConnectErrorKind::{
            Cluster, Functions, NotReady, Permission, Replica, TooOld, Unusable,
        };
        matches!(self, NotReady | Permission | TooOld | Replica | Cluster | Functions | Unusable)
    }

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
