//! Finds the server to connect to. The server is looked up for each connection, because another
//! server may be the primary after a failover.

mod sentinel;

use std::fmt;
#[cfg(feature = "sentinel")]
use std::panic::AssertUnwindSafe;
use std::time::Duration;

#[cfg(feature = "sentinel")]
use futures_util::FutureExt;
use futures_util::stream::{self, FuturesUnordered, Stream, StreamExt};
use redis::aio::MultiplexedConnection;
use redis::{Client, ConnectionInfo, ErrorKind, RedisError, Value};
use tokio::time::timeout;

use super::LOG_TARGET;
use super::dialer::{Dialed, Dialer};
use crate::error::{ConnectErrorKind, IS_REPLICA, TWO_PRIMARIES, cause_of};

pub(crate) use sentinel::Sentinels;

/// redis-rs makes rustls choose a crate for cryptography. If the program has several such crates
/// and no default, rustls panics.
#[cfg(feature = "sentinel")]
const NO_CHOICE: &str = "the query to the sentinels panicked: if it uses TLS and the program has \
                         several cryptography crates, call install_default() of one of them first";

/// How long to wait for a second primary after the first primary has replied. All servers are
/// queried at the same time, so only a slow server takes longer.
const SECOND_PRIMARY: Duration = Duration::from_millis(100);

#[derive(Clone)]
pub(crate) enum Source {
    Client(Box<Client>),
    PrimaryOf(Vec<Client>),
    /// The server that the sentinels name as the primary, if its role is primary.
    Sentinels(Box<Sentinels>),
    /// The primary that the sentinels name, looked up by redis-rs.
    #[cfg(feature = "sentinel")]
    Sentinel(std::sync::Arc<tokio::sync::Mutex<redis::sentinel::SentinelClient>>),
}

/// The error of connecting, and the server if it is known.
pub(super) struct Unconnected {
    pub(super) server: Option<String>,
    pub(super) error: RedisError,
}

impl From<RedisError> for Unconnected {
    fn from(error: RedisError) -> Self {
        Self { server: None, error }
    }
}

impl Source {
    pub(super) async fn connect(&self, dialer: &Dialer) -> Result<(Client, Dialed), Unconnected> {
        let client = match self {
            Self::Client(client) => Client::clone(client),
            Self::PrimaryOf(clients) => return primary_of(clients, dialer).await,
            Self::Sentinels(sentinels) => return sentinels.connect(dialer).await,
            #[cfg(feature = "sentinel")]
            Self::Sentinel(sentinels) => {
                let mut sentinels = sentinels.lock().await;
                let asked = AssertUnwindSafe(sentinels.async_get_client()).catch_unwind().await;
                asked.unwrap_or_else(|_| Err((ErrorKind::InvalidClientConfig, NO_CHOICE).into()))?
            }
        };
        let server = Some(address(&client));
        match dialer.connect(&client, &dialer.config()).await {
            Ok(dialed) => Ok((client, dialed)),
            Err(error) => Err(Unconnected { server, error }),
        }
    }

    /// The timeout for connecting.
    pub(super) fn patience(&self, dialer: &Dialer) -> Duration {
        match self {
            Self::Client(client) => dialer.steps(client),
            Self::PrimaryOf(clients) => {
                let steps = clients.iter().map(|client| dialer.steps(client)).max();
                steps.unwrap_or_default() + dialer.response_timeout()
            }
            // This time covers a connection to a sentinel, a connection to the primary, and one
            // command over each of them.
            Self::Sentinels(_) => dialer.response_timeout() * 10,
            // redis-rs queries one sentinel after the other, each for at most 1 s.
            #[cfg(feature = "sentinel")]
            Self::Sentinel(_) => (dialer.response_timeout() * 4).max(Duration::from_secs(10)),
        }
    }

    /// The server, if it is always the same.
    pub(crate) fn client(&self) -> Option<&Client> {
        match self {
            Self::Client(client) => Some(client),
            _ => None,
        }
    }

    /// The server with this address, if it was configured.
    pub(crate) fn client_at(&self, server: &str) -> Option<&Client> {
        match self {
            Self::PrimaryOf(clients) => clients.iter().find(|client| address(client) == server),
            _ => self.client(),
        }
    }

    /// The servers that are known without a query.
    pub(crate) fn servers(&self) -> Vec<&ConnectionInfo> {
        match self {
            Self::Client(client) => vec![client.get_connection_info()],
            Self::PrimaryOf(clients) => clients.iter().map(Client::get_connection_info).collect(),
            Self::Sentinels(sentinels) => vec![&sentinels.primary],
            #[cfg(feature = "sentinel")]
            Self::Sentinel(_) => Vec::new(),
        }
    }

    /// Whether a server other than the connected server may become the primary.
    pub(crate) fn may_move(&self) -> bool {
        !matches!(self, Self::Client(_))
    }

    /// Fails if the connection is broken, or if its server is a replica but must be a primary.
    pub(super) async fn check(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<(), RedisError> {
        match self.may_move() {
            true => is_primary(connection).await,
            false => redis::cmd("PING").exec_async(connection).await,
        }
    }
}

/// Connects to all servers, and returns the server whose role is primary. Two primaries would both
/// grant permits, for example after the former primary was started again. So the connection fails
/// if a second primary replies within [`SECOND_PRIMARY`].
async fn primary_of(clients: &[Client], dialer: &Dialer) -> Result<(Client, Dialed), Unconnected> {
    let attempts = clients.iter().map(async |client| {
        connect_to_primary(client, dialer).await.map_err(|error| (address(client), error))
    });
    let (mut attempts, mut errors): (FuturesUnordered<_>, _) = (attempts.collect(), Vec::new());
    let Some(first) = next_ok(&mut attempts, &mut errors).await else {
        return Err(no_primary(errors));
    };
    let second = timeout(SECOND_PRIMARY, next_ok(&mut attempts, &mut errors)).await;
    if let Ok(Some((second, _))) = second {
        let both = format!("{} and {}", address(&first.0), address(&second));
        return Err(RedisError::from((ErrorKind::Io, TWO_PRIMARIES, both)).into());
    }
    for (server, error) in errors.iter().filter(|(_, error)| is_to_be_mended(error)) {
        let error = cause_of(error).reason();
        tracing::warn!(target: LOG_TARGET, server, error, "the role of a server is unknown");
    }
    Ok(first)
}

fn no_primary(errors: Vec<(String, RedisError)>) -> Unconnected {
    let reason = |(server, error): &_| format!("{server}: {}", cause_of(error).found);
    let reasons: Vec<_> = errors.iter().map(reason).collect();
    // An error about the user or the certificates is returned alone, because a person must fix it.
    if let Some((server, error)) = errors.into_iter().find(|(_, error)| is_to_be_mended(error)) {
        return Unconnected { server: Some(server), error };
    }
    let found = "no server in the list is a primary that can be reached";
    Unconnected::from(RedisError::from((ErrorKind::Io, found, reasons.join("; "))))
}

/// Makes up to `at_once` attempts at the same time. Returns the first success or, if all attempts
/// have failed, their errors in the order of the failures.
pub(super) async fn first_ok<T, E>(
    at_once: usize,
    attempts: Vec<impl Future<Output = Result<T, E>>>,
) -> Result<T, Vec<E>> {
    let mut errors = Vec::new();
    let mut attempts = stream::iter(attempts).buffer_unordered(at_once);
    next_ok(&mut attempts, &mut errors).await.ok_or(errors)
}

/// Returns the next success, or `None` if all attempts have failed. Adds the errors to `errors`.
async fn next_ok<T, E>(
    attempts: &mut (impl Stream<Item = Result<T, E>> + Unpin),
    errors: &mut Vec<E>,
) -> Option<T> {
    while let Some(response) = attempts.next().await {
        match response {
            Ok(success) => return Some(success),
            Err(error) => errors.push(error),
        }
    }
    None
}

/// Whether the error is about the user or the certificates.
fn is_to_be_mended(error: &RedisError) -> bool {
    use ConnectErrorKind::{Authentication, Permission, Tls};
    matches!(cause_of(error).kind, Authentication | Permission | Tls)
}

async fn connect_to_primary(
    client: &Client,
    dialer: &Dialer,
) -> Result<(Client, Dialed), RedisError> {
    let dialed = dialer.connect(client, &dialer.config()).await?;
    is_primary(&mut dialed.connection()).await?;
    Ok((client.clone(), dialed))
}

async fn is_primary(connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
    let role: Vec<Value> = redis::cmd("ROLE").query_async(connection).await?;
    let role: Option<String> = role.first().map(redis::from_redis_value_ref).transpose()?;
    match role.as_deref() {
        Some("master") => Ok(()),
        Some("sentinel") => Err((ErrorKind::Io, "it is a sentinel").into()),
        _ => Err((ErrorKind::Io, IS_REPLICA).into()),
    }
}

/// Returns the address without the password.
pub(crate) fn address(client: &Client) -> String {
    client.get_connection_info().addr().to_string()
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(client) => f.write_str(&address(client)),
            Self::PrimaryOf(clients) => {
                let addresses: Vec<_> = clients.iter().map(address).collect();
                f.write_str(&addresses.join(", "))
            }
            Self::Sentinels(sentinels) => {
                let addresses: Vec<_> = sentinels.sentinels.iter().map(address).collect();
                write!(f, "the primary of the sentinels {}", addresses.join(", "))
            }
            #[cfg(feature = "sentinel")]
            Self::Sentinel(_) => f.write_str("the primary that the sentinels name"),
        }
    }
}
