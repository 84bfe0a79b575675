//! What all connections have in common, whatever they are for: how they use TCP, how long they may
//! take, and as whom they log in.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::call_error::within;
use super::stream::{self, Bounded};
#[cfg(feature = "tls")]
use super::tls::{self, Tls};
use crate::error::Rounded;
use crate::server::Credentials;
use crate::server::credentials::Provider;

/// After how long without traffic the system looks whether the other side is still there.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// A lost packet is sent again after a fifth of a second and more: that must not end a connection.
const SHORTEST_USER_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection. It ends with the last copy of this.
#[derive(Clone)]
pub(crate) struct Dialed {
    pub(crate) connection: MultiplexedConnection,
    _driver: Option<Arc<AbortOnDropHandle<()>>>,
}

/// Makes connections.
#[derive(Clone)]
pub(crate) struct Dialer {
    response_timeout: Duration,
    credentials: Option<Arc<Provider>>,
    #[cfg(feature = "tls")]
    tls: Arc<Tls>,
    /// Of the last connection for commands, to whatever server.
    last_number: Arc<AtomicU64>,
}

impl Dialer {
    pub(crate) fn new(
        response_timeout: Duration,
        credentials: Option<Arc<Provider>>,
        #[cfg(feature = "tls")] tls: Arc<Tls>,
    ) -> Self {
        Self {
            response_timeout,
            credentials,
            #[cfg(feature = "tls")]
            tls,
            last_number: Arc::default(),
        }
    }

    /// For servers of others, who must not learn the password.
    pub(super) fn without_provider(&self) -> Self {
        Self { credentials: None, ..self.clone() }
    }

    pub(crate) fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    pub(crate) fn config(&self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.response_timeout))
            .set_response_timeout(Some(self.response_timeout))
    }

    /// For a new connection: no other has it.
    pub(super) fn next_number(&self) -> u64 {
        self.last_number.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// For commands.
    pub(crate) async fn connect(
        &self,
        client: &Client,
        config: &AsyncConnectionConfig,
    ) -> Result<Dialed, RedisError> {
        let client = self.ready(client).await?;
        self.open(&client, config).await
    }

    /// With a client that is [`ready`](Self::ready), or is to stay as it is.
    pub(crate) async fn open(
        &self,
        client: &Client,
        config: &AsyncConnectionConfig,
    ) -> Result<Dialed, RedisError> {
        let info = client.get_connection_info();
        let limit = self.response_timeout;
        let Some(stream) = self.stream_to(client).await? else {
            let config = config.clone().set_connection_timeout(Some(self.steps(client)));
            let connecting = client.get_multiplexed_async_connection_with_config(&config);
            return Ok(Dialed { connection: connecting.await?, _driver: None });
        };
        let settings = info.redis_settings();
        let set_up = MultiplexedConnection::new_with_config(settings, stream, config.clone());
        let (connection, driver) = within(limit, set_up).await?;
        let driver = AbortOnDropHandle::new(tokio::spawn(driver));
        Ok(Dialed { connection, _driver: Some(Arc::new(driver)) })
    }

    /// For messages.
    pub(crate) async fn listen(&self, client: &Client) -> Result<PubSub, RedisError> {
        let client = self.ready(client).await?;
        let info = client.get_connection_info();
        let limit = self.response_timeout;
        match self.stream_to(&client).await? {
            Some(stream) => within(limit, PubSub::new(info.redis_settings(), stream)).await,
            None => within(self.steps(&client), client.get_async_pubsub()).await,
        }
    }

    /// Nothing for what redis-rs must connect to itself.
    async fn stream_to(&self, client: &Client) -> Result<Option<Bounded>, RedisError> {
        let info = client.get_connection_info();
        let (limit, settings) = (self.response_timeout, info.tcp_settings());
        #[cfg(feature = "tls")]
        if let Some((host, port)) = tls::place(info) {
            let tcp = within(limit, stream::tcp(host, port, settings)).await?;
            let encrypted = within(limit, self.tls.encrypt(host, tcp)).await?;
            return Ok(Some(Bounded::new(encrypted)));
        }
        stream::open(info.addr(), settings, limit).await
    }

    /// How long connecting may take, where each step takes the response timeout: TCP, TLS, and what
    /// a connection begins with.
    pub(crate) fn steps(&self, client: &Client) -> Duration {
        let steps = match client.get_connection_info().addr() {
            ConnectionAddr::TcpTls { .. } => 3,
            _ => 2,
        };
        self.response_timeout * (steps + u32::from(self.credentials.is_some()))
    }

    /// The client, with what the next connection needs. Every connection begins here.
    pub(crate) async fn ready(&self, client: &Client) -> Result<Client, RedisError> {
        let mut info = self.tune(client.get_connection_info().clone());
        if let Some(provider) = &self.credentials {
            let failed = |failure| {
                let reason = "the credentials provider failed";
                RedisError::from((ErrorKind::AuthenticationFailed, reason, failure))
            };
            let credentials = self.ask(&**provider).await.map_err(failed)?;
            let settings = credentials.apply_to(info.redis_settings().clone()).map_err(failed)?;
            info = info.set_redis_settings(settings);
        }
        // Users need not have the right to tell what they connect with.
        let settings = info.redis_settings().clone();
        if settings.lib_name().is_none() {
            info = info.set_redis_settings(settings.set_skip_set_lib_name());
        }
        Client::open(info)
    }

    /// Whatever it does: a task that listens, say, must survive that.
    async fn ask(&self, provider: &Provider) -> Result<Credentials, String> {
        // Less than connecting may take as a whole, so that it is told who was slow.
        let patience = self.response_timeout.mul_f64(0.9);
        let asked = AssertUnwindSafe(async { provider().await }).catch_unwind();
        match timeout(patience, asked).await {
            Ok(Ok(answer)) => answer.map_err(|error| error.to_string()),
            Ok(Err(_)) => Err("it panicked".to_owned()),
            Err(_) => Err(format!("no answer within {}", Rounded(patience))),
        }
    }

    /// Without Nagle's algorithm, which holds a call back until the one before is acknowledged. And
    /// such that a peer that went silent is noticed, also where nobody sends anything, and what it
    /// never got is not sent to it any more by the time its calls have been made elsewhere.
    fn tune(&self, info: ConnectionInfo) -> ConnectionInfo {
        let mut settings = info.tcp_settings().clone().set_nodelay(true);
        if settings.keepalive().is_none() {
            settings = settings.set_keepalive(TcpKeepalive::new().with_time(KEEPALIVE));
        }
        #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
        if settings.user_timeout().is_none() {
            settings = settings.set_user_timeout(user_timeout(self.response_timeout));
        }
        info.set_tcp_settings(settings)
    }
}

/// For how long the system tries to get something to the other side. By then calls have been given
/// up, and made again.
pub(crate) fn user_timeout(response_timeout: Duration) -> Duration {
    (response_timeout * 2).max(SHORTEST_USER_TIMEOUT)
}
