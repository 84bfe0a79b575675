//! Which server to connect to. That is found out anew for each connection: after a failover it is
//! another one.

use std::fmt;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::aio::MultiplexedConnection;
use redis::{Client, ErrorKind, RedisError, Value};

use super::dialer::Dialer;
use crate::error::{ConnectErrorKind, cause_of};

pub(crate) enum Source {
    Client(Box<Client>),
    /// Whichever of these is the primary.
    PrimaryOf(Vec<Client>),
    /// Whichever the sentinels call the primary, and does so itself.
    #[cfg(feature = "sentinel")]
    Sentinel(Box<tokio::sync::Mutex<redis::sentinel::SentinelClient>>),
}

impl Source {
    pub(crate) async fn connect(
        &self,
        dialer: &Dialer,
    ) -> Result<(Client, MultiplexedConnection), RedisError> {
        let client = match self {
            Self::Client(client) => Client::clone(client),
            Self::PrimaryOf(clients) => return primary_of(clients, dialer).await,
            #[cfg(feature = "sentinel")]
            Self::Sentinel(sentinels) => sentinels.lock().await.async_get_client().await?,
        };
        let connection = dialer.connect(&client, &dialer.config()).await?;
        Ok((client, connection))
    }

    /// How long connecting may take, where one connection may take `timeout`.
    pub(super) fn patience(&self, timeout: Duration) -> Duration {
        match self {
            Self::Client(_) | Self::PrimaryOf(_) => timeout,
            // They are asked one after the other, and redis-rs gives each a second.
            #[cfg(feature = "sentinel")]
            Self::Sentinel(_) => timeout.max(Duration::from_secs(10)),
        }
    }

    /// The one server, where it is always the same.
    pub(crate) fn client(&self) -> Option<&Client> {
        match self {
            Self::Client(client) => Some(client),
            _ => None,
        }
    }

    /// Whether the primary may become another server than the one that is connected.
    pub(crate) fn may_move(&self) -> bool {
        !matches!(self, Self::Client(_))
    }

    /// Fails where the connection is broken, or leads to a replica and should not.
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

/// The first one that says so.
async fn primary_of(
    clients: &[Client],
    dialer: &Dialer,
) -> Result<(Client, MultiplexedConnection), RedisError> {
    let mut asked: FuturesUnordered<_> =
        clients.iter().map(|client| connect_to_primary(client, dialer)).collect();
    let (mut reasons, mut about_user) = (Vec::new(), None);
    while let Some(found) = asked.next().await {
        match found {
            Ok(connection) => return Ok(connection),
            Err((client, error)) => {
                reasons.push(format!("{}: {}", address(client), cause_of(&error).found));
                about_user = about_user.or(Some(error).filter(is_about_user));
            }
        }
    }
    if let Some(error) = about_user {
        return Err(error); // To be mended by somebody, whichever is the primary.
    }
    let reasons = reasons.join("; ");
    Err((ErrorKind::Io, "none of the servers is a primary that can be reached", reasons).into())
}

fn is_about_user(error: &RedisError) -> bool {
    matches!(cause_of(error).kind, ConnectErrorKind::Authentication | ConnectErrorKind::Permission)
}

async fn connect_to_primary<'a>(
    client: &'a Client,
    dialer: &Dialer,
) -> Result<(Client, MultiplexedConnection), (&'a Client, RedisError)> {
    let connect = async {
        let mut connection = dialer.connect(client, &dialer.config()).await?;
        is_primary(&mut connection).await?;
        Ok(connection)
    };
    connect.await.map(|connection| (client.clone(), connection)).map_err(|error| (client, error))
}

async fn is_primary(connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
    let role: Vec<Value> = redis::cmd("ROLE").query_async(connection).await?;
    let role: Option<String> = role.first().map(redis::from_redis_value_ref).transpose()?;
    match role.as_deref() {
        Some("master") => Ok(()),
        _ => Err((ErrorKind::Io, "it is a replica").into()),
    }
}

/// Without the password.
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
            #[cfg(feature = "sentinel")]
            Self::Sentinel(_) => f.write_str("the primary that the sentinels name"),
        }
    }
}
