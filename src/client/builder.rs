//! The settings of a connection, until it is made.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, TryFutureExt};

use crate::context::ClientSettings;
use crate::diagnosis::connect::Access;
use crate::error::Error;
use crate::metrics::MAX_NAMES;
use crate::protocol::id::MAX_TIME;
use crate::protocol::{check_client_name, check_prefix, may_be_in_client_name};
use crate::scripts::{CallBy, Library};
use crate::server::Credentials;
use crate::server::credentials::{BoxError, Provider};

/// As it is published: `lua/functions.lua`.
const FUNCTIONS: Library = Library { name: "redis_semaphore", prefix: "sem_" };

/// Settings of the connection. From [`SemaphoreClient::builder`](crate::SemaphoreClient::builder).
///
/// # Examples
///
/// ```
/// # use std::time::Duration;
/// # use redis_semaphore::{Error, SemaphoreClient};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let client = SemaphoreClient::builder()
///     .prefix("shop:sem")
///     .client_name("importer-7")
///     .response_timeout(Duration::from_secs(1))
///     .connect(&std::env::var("REDIS_URL").unwrap())
///     .await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "connect() connects"]
#[derive(Clone)]
pub struct SemaphoreClientBuilder {
    pub(crate) prefix: String,
    pub(crate) client_name: Option<String>,
    pub(crate) call_by: CallBy,
    pub(crate) settings: ClientSettings,
    pub(crate) credentials: Option<Arc<Provider>>,
    pub(crate) access: Access,
    pub(crate) connect_timeout: Duration,
    #[cfg(feature = "tls")]
    pub(crate) certificates: Option<redis::TlsCertificates>,
}

impl fmt::Debug for SemaphoreClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SemaphoreClientBuilder")
            .field("prefix", &self.prefix)
            .field("client_name", &self.client_name)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl SemaphoreClientBuilder {
    pub(crate) fn new() -> Self {
        let settings = ClientSettings {
            response_timeout: Duration::from_secs(2),
            heartbeat_timeout: Duration::from_secs(15),
            outage_tolerance: Duration::from_secs(30),
            max_metric_names: MAX_NAMES,
        };
        let (client_name, call_by, credentials) = (None, CallBy::Sha1, None);
        let (prefix, access) = ("sem".to_owned(), Access::Full);
        Self {
            prefix,
            client_name,
            call_by,
            settings,
            credentials,
            access,
            connect_timeout: Duration::ZERO,
            #[cfg(feature = "tls")]
            certificates: None,
        }
    }

    /// What the names of all keys and channels begin with; default: `sem`. 1 to 200 bytes, no
    /// braces, no white space or control characters.
    ///
    /// # Examples
    ///
    /// See [`SemaphoreClientBuilder`].
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The label under which [`inspect`](crate::Semaphore::inspect) shows the permits of this
    /// process; default: host name and process id. 1 to 91 letters, digits, `.`, `_` and `-`.
    ///
    /// # Examples
    ///
    /// See [`SemaphoreClientBuilder`].
    pub fn client_name(mut self, client_name: impl Into<String>) -> Self {
        self.client_name = Some(client_name.into());
        self
    }

    /// How long to wait for the answer to one command, or for one step of connecting (each is a
    /// round trip); default: 2 s. 1 ms to 1 hour. After two of them in a row without an answer the
    /// connection is replaced. A renewal has no more than a sixth of the lease, and counts if that
    /// is 200 ms or more.
    ///
    /// # Examples
    ///
    /// See [`SemaphoreClientBuilder`].
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.settings.response_timeout = timeout;
        self
    }

    /// Sets for how long connecting is retried while no server serves. Default: zero, which is one
    /// attempt. With more, a program may start before its server does, or during a failover:
    /// connecting outlasts what a wait outlasts. The reasons are those for which
    /// [`Error::is_transient`] is true, and a server whose memory or disk is full. Any other error,
    /// such as a wrong password, is returned immediately. The first failure is logged.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// let client = SemaphoreClient::builder()
    ///     .connect_timeout(Duration::from_secs(60))
    ///     .connect(&std::env::var("REDIS_URL").unwrap())
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// After how long without a heartbeat the server takes our waiting requests for dead, and
    /// the next in the queue are served; default: 15 s. 100 ms to 7 days. One is sent every
    /// third of it, and any lost wake-up is noticed then.
    ///
    /// # Examples
    ///
    /// See [`SemaphoreClientBuilder`].
    pub fn heartbeat_timeout(mut self, heartbeat_timeout: Duration) -> Self {
        self.settings.heartbeat_timeout = heartbeat_timeout;
        self
    }

    /// For how long a wait survives that Redis does not answer; default: 30 s. No less than twice
    /// the response timeout, for which every call is repeated.
    ///
    /// # Examples
    ///
    /// See [`SemaphoreClientBuilder`].
    pub fn outage_tolerance(mut self, tolerance: Duration) -> Self {
        self.settings.outage_tolerance = tolerance;
        self
    }

    /// Has the scripts run as Redis functions (`FCALL`) instead of by their SHA-1 (`EVALSHA`). They
    /// are the same code on the same keys, so clients of both kinds share semaphores. Redis 7.0 or
    /// newer, or Valkey, is needed.
    ///
    /// Functions are part of the server's data: they outlive restarts and failovers, and a user may
    /// be allowed to call them without being allowed to run scripts. A server that lacks them gets
    /// the library `redis_semaphore` (`lua/functions.lua`); while its memory is too full for that,
    /// the scripts are called, if the user may. A library that is there is used as it is: after an
    /// upgrade, load the new one with `FUNCTION LOAD REPLACE`.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_semaphore::Error> {
    /// # let url = std::env::var("REDIS_URL").unwrap();
    /// use redis_semaphore::{ConnectErrorKind, Error, SemaphoreClient};
    ///
    /// match SemaphoreClient::builder().use_functions().connect(&url).await {
    ///     Ok(client) => drop(client.semaphore("jobs").limit(3).build()?.acquire().await?),
    ///     // Older than Redis 7.0.
    ///     Err(Error::Connect { kind: ConnectErrorKind::TooOld, reason, .. }) => println!("{reason}"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn use_functions(mut self) -> Self {
        self.call_by = CallBy::Function(FUNCTIONS);
        self
    }

    /// For a user who may only look, with the fewer rights that `docs/protocol.md` has for that:
    /// connecting tries nothing that writes, and may end at a replica. What looks works then:
    /// [`names`](crate::SemaphoreClient::names), [`inspect`](crate::Semaphore::inspect),
    /// [`limit`](crate::Semaphore::limit), [`doctor`](crate::SemaphoreClient::doctor) (which says
    /// what the user lacks to do more). What writes fails, where the user may not, with
    /// [`Error::Rejected`]; a wait in a cluster, where the user may not listen either, with
    /// [`Error::Unavailable`] after the outage tolerance.
    ///
    /// # Examples
    ///
    /// ```
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let url = std::env::var("REDIS_URL").unwrap();
    /// let client = SemaphoreClient::builder().read_only().connect(&url).await?;
    /// println!("{}", client.doctor().await?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_only(mut self) -> Self {
        self.access = Access::ReadOnly;
        self
    }

    /// Asked for a password before each connection: for those of commands, of messages and of
    /// acknowledgements, and to each node of a cluster. For passwords that change, and tokens that
    /// expire. A URL or client that has a password as well is refused. Its user is the one
    /// that logs in: the provider need not name one, and must not name another.
    ///
    /// It may take nine tenths of the response timeout: what is left is for the server. When it
    /// fails, connecting fails, and is tried again as after any other failure; so it is when the
    /// server refuses the password, which may be about to change. Connections that are there stay.
    /// With sentinels, redis-rs asks the primary for its role as the `SentinelClient` says.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use redis_semaphore::{Credentials, SemaphoreClient};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_semaphore::Error> {
    /// let client = SemaphoreClient::builder()
    ///     .credentials_provider(async || {
    ///         let password = tokio::fs::read_to_string("/run/secrets/redis").await?;
    ///         Ok::<_, std::io::Error>(Credentials::new(password.trim()).username("importer"))
    ///     })
    ///     .connect("redis://redis.example/")
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn credentials_provider<F, E>(
        mut self,
        provider: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<BoxError> + 'static,
    {
        self.credentials = Some(Arc::new(move || provider().map_err(Into::into).boxed()));
        self
    }

    /// Certificates for servers that are reached over TLS (`rediss://`): the authorities that may
    /// have signed theirs, and one for this client. They are in PEM, and are read when it connects:
    /// connect anew for new ones. Without, the server's must be signed by an authority that the
    /// system trusts.
    ///
    /// TLS is that of rustls, with the provider for cryptography that the program has installed
    /// (`CryptoProvider::install_default`), or else with ring. None is installed here: the program
    /// may do so later. (A `redis::Client` or `SentinelClient` with certificates of its own is
    /// connected by redis-rs, which has rustls install one.)
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use redis_semaphore::SemaphoreClient;
    /// use redis_semaphore::redis::{ClientTlsConfig, TlsCertificates};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let certificates = TlsCertificates {
    ///     // None where the server wants no certificate of its clients.
    ///     client_tls: Some(ClientTlsConfig {
    ///         client_cert: std::fs::read("client.crt")?,
    ///         client_key: std::fs::read("client.key")?,
    ///     }),
    ///     // None for the authorities that the system trusts.
    ///     root_cert: Some(std::fs::read("ca.crt")?),
    /// };
    /// let client = SemaphoreClient::builder()
    ///     .certificates(certificates)
    ///     .connect("rediss://redis.example:6380/")
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "tls")]
    pub fn certificates(mut self, certificates: redis::TlsCertificates) -> Self {
        self.certificates = Some(certificates);
        self
    }

    /// How many distinct names of semaphores become labels of metrics; what all others do counts
    /// for the label `{other}`. Default: 100, the first that are built. 0 where names come from
    /// users or orders, say. Feature `metrics`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let url = std::env::var("REDIS_URL").unwrap();
    /// let client = SemaphoreClient::builder().max_metric_names(500).connect(&url).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "metrics")]
    pub fn max_metric_names(mut self, most: usize) -> Self {
        self.settings.max_metric_names = most;
        self
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        const LONGEST_RESPONSE: Duration = Duration::from_secs(60 * 60);
        check_prefix(&self.prefix)?;
        if let Some(client_name) = &self.client_name {
            check_client_name(client_name)?;
        }
        let ClientSettings { response_timeout, heartbeat_timeout, .. } = self.settings;
        if response_timeout < Duration::from_millis(1) || response_timeout > LONGEST_RESPONSE {
            let reason = format!("must be 1 ms to 1 hour, not {response_timeout:?}");
            return Err(Error::invalid("response_timeout", reason));
        }
        if heartbeat_timeout < Duration::from_millis(100) || heartbeat_timeout > MAX_TIME {
            let reason = format!("must be 100 ms to 7 days, not {heartbeat_timeout:?}");
            return Err(Error::invalid("heartbeat_timeout", reason));
        }
        Ok(())
    }
}

/// Host and process, with nothing in it that a client name may not have.
pub(crate) fn default_client_name() -> String {
    const MAX_HOST: usize = 64;
    let host = gethostname::gethostname().to_string_lossy().into_owned();
    let host: String = host.chars().filter(may_be_in_client_name).take(MAX_HOST).collect();
    format!("{}.{}", if host.is_empty() { "host" } else { &host }, std::process::id())
}
