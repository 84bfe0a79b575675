//! The common part of all connections: TCP settings, timeouts and login.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
#[cfg(unix)]
use futures_util::TryFutureExt;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, RedisConnectionInfo,
    RedisError,
};
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::call_error::within;
use super::first_error::FirstError;
use super::stream::{self, Bounded, Duplex};
#[cfg(feature = "tls")]
use super::tls::Tls;
use crate::error::Rounded;
use crate::server::Credentials;
use crate::server::credentials::{Provider, without_password};

/// The time without traffic after which the system checks that the peer is reachable.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// The system sends a lost packet again after 0.2 s or more. A connection must survive this delay.
const SHORTEST_USER_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection, which ends when its last copy is dropped.
#[derive(Clone)]
pub(crate) struct Dialed {
    unlimited: MultiplexedConnection,
    response_timeout: Duration,
    _driver: Option<Arc<AbortOnDropHandle<()>>>,
}

impl Dialed {
    /// The connection. Each of its commands takes at most the response timeout.
    pub(crate) fn connection(&self) -> MultiplexedConnection {
        let mut connection = self.unlimited.clone();
        connection.set_response_timeout(self.response_timeout);
        connection
    }

    /// The connection without a response timeout. The caller must limit the time of its commands.
    pub(crate) fn unlimited(&self) -> MultiplexedConnection {
        self.unlimited.clone()
    }
}

#[derive(Clone)]
pub(crate) struct Dialer {
    response_timeout: Duration,
    credentials: Option<Arc<Provider>>,
    #[cfg(feature = "tls")]
    tls: Arc<Tls>,
    /// The number of the last connection for commands, to any server.
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

    /// Returns a dialer for other servers, such as sentinels, which must not get the password.
    pub(super) fn without_provider(&self) -> Self {
        Self { credentials: None, ..self.clone() }
    }

    pub(crate) fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    /// The settings of a connection for commands. Commands that wait for space in the connection's
    /// buffer may be written in another order, so the buffer has the largest size that tokio allows.
    /// [`Dialed`] sets the response timeout.
    pub(crate) fn config(&self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_pipeline_buffer_size(tokio::sync::Semaphore::MAX_PERMITS)
            .set_connection_timeout(Some(self.response_timeout))
            .set_response_timeout(None)
    }

    /// The number of a new connection. No other connection of this client has this number.
    pub(super) fn next_number(&self) -> u64 {
        self.last_number.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Opens a connection for commands.
    pub(crate) async fn connect(
        &self,
        client: &Client,
        config: &AsyncConnectionConfig,
    ) -> Result<Dialed, RedisError> {
        let client = self.ready(client).await?;
        self.open(&client, config).await
    }

    /// Opens a connection with a client that is [`ready`](Self::ready), or whose settings must not
    /// change.
    pub(crate) async fn open(
        &self,
        client: &Client,
        config: &AsyncConnectionConfig,
    ) -> Result<Dialed, RedisError> {
        let Some(stream) = self.stream_to(client).await? else {
            let config = config.clone().set_connection_timeout(Some(self.steps(client)));
            let connecting = client.get_multiplexed_async_connection_with_config(&config);
            let connection = connecting.await.map_err(|error| hidden(error, client))?;
            return Ok(self.dialed(connection, None));
        };
        let (first_error, settings) = (stream.first_error(), settings_of(client));
        let set_up = MultiplexedConnection::new_with_config(settings, stream, config.clone());
        let (connection, driver) = self.log_in(client, first_error, set_up).await?;
        let driver = AbortOnDropHandle::new(tokio::spawn(driver));
        Ok(self.dialed(connection, Some(Arc::new(driver))))
    }

    fn dialed(
        &self,
        unlimited: MultiplexedConnection,
        driver: Option<Arc<AbortOnDropHandle<()>>>,
    ) -> Dialed {
        Dialed { unlimited, response_timeout: self.response_timeout, _driver: driver }
    }

    /// Opens a connection for messages.
    pub(crate) async fn listen(&self, client: &Client) -> Result<PubSub, RedisError> {
        let client = self.ready(client).await?;
        match self.stream_to(&client).await? {
            Some(stream) => {
                let first_error = stream.first_error();
                let set_up = PubSub::new(settings_of(&client), stream);
                self.log_in(&client, first_error, set_up).await
            }
            None => {
                let done = within(self.steps(&client), client.get_async_pubsub()).await;
                done.map_err(|error| hidden(error, &client))
            }
        }
    }

    /// Logs in. If the login fails, returns the server's error instead of the error of redis-rs.
    async fn log_in<T>(
        &self,
        client: &Client,
        first_error: FirstError,
        set_up: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, RedisError> {
        let done = within(self.response_timeout, set_up).await;
        done.map_err(|error| hidden(first_error.get().unwrap_or(error), client))
    }

    /// Opens a stream to the server. Returns `None` if only redis-rs can make the connection.
    async fn stream_to(&self, client: &Client) -> Result<Option<Bounded>, RedisError> {
        let info = client.get_connection_info();
        let (limit, settings) = (self.response_timeout, info.tcp_settings());
        let stream: Box<dyn Duplex> = match info.addr() {
            ConnectionAddr::Tcp(host, port) => {
                Box::new(within(limit, stream::tcp(host, *port, settings)).await?)
            }
            #[cfg(feature = "tls")]
            ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None } => {
                let tcp = within(limit, stream::tcp(host, *port, settings)).await?;
                Box::new(within(limit, self.tls.encrypt(host, tcp)).await?)
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => {
                Box::new(within(limit, UnixStream::connect(path).err_into::<RedisError>()).await?)
            }
            _ => return Ok(None),
        };
        Ok(Some(Bounded::new(stream)))
    }

    /// The timeout for connecting. Each step takes at most the response timeout: TCP, TLS, the
    /// credentials provider, and the first commands.
    pub(crate) fn steps(&self, client: &Client) -> Duration {
        let steps = match client.get_connection_info().addr() {
            ConnectionAddr::TcpTls { .. } => 3,
            _ => 2,
        };
        self.response_timeout * (steps + u32::from(self.credentials.is_some()))
    }

    /// Returns the client with the settings for the next connection.
    pub(crate) async fn ready(&self, client: &Client) -> Result<Client, RedisError> {
        let mut info = self.tune(client.get_connection_info().clone());
        if let Some(provider) = &self.credentials {
            let failed = |failure: String| {
                let reason = "the credentials provider failed";
                let line = failure.split_whitespace().collect::<Vec<_>>().join(" ");
                RedisError::from((ErrorKind::AuthenticationFailed, reason, line))
            };
            let credentials = self.ask(&**provider).await.map_err(failed)?;
            let settings = credentials.apply_to(info.redis_settings().clone()).map_err(failed)?;
            info = info.set_redis_settings(settings);
        }
        // redis-rs would send its own name (CLIENT SETINFO), but a user may lack this permission.
        let settings = info.redis_settings().clone();
        if settings.lib_name().is_none() {
            info = info.set_redis_settings(settings.set_skip_set_lib_name());
        }
        Client::open(info)
    }

    /// Calls the provider. A panic is caught, because a task that receives messages must survive
    /// the panic.
    async fn ask(&self, provider: &Provider) -> Result<Credentials, String> {
        // The limit is less than the timeout for connecting, so that the error names the provider.
        let patience = self.response_timeout.mul_f64(0.9);
        let asked = AssertUnwindSafe(async { provider().await }).catch_unwind();
        match timeout(patience, asked).await {
            Ok(Ok(response)) => response.map_err(|error| error.to_string()),
            Ok(Err(_)) => Err("it panicked".to_owned()),
            Err(_) => Err(format!("no reply within {}", Rounded(patience))),
        }
    }

    /// Sets the TCP options.
    ///
    /// Nagle's algorithm is disabled, because it delays a call until the previous call is
    /// acknowledged. Keepalive detects a silent peer, even if no data is sent. The user timeout
    /// limits how long the system tries to deliver calls that have timed out.
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

fn settings_of(client: &Client) -> &RedisConnectionInfo {
    client.get_connection_info().redis_settings()
}

/// Returns the error of a login without the password.
fn hidden(error: RedisError, client: &Client) -> RedisError {
    without_password(error, settings_of(client))
}

/// How long the system tries to deliver data to the peer. After this time, the calls in this data
/// have timed out, and may have been repeated.
pub(crate) fn user_timeout(response_timeout: Duration) -> Duration {
    (response_timeout * 2).max(SHORTEST_USER_TIMEOUT)
}
