//! The settings of a client that has not connected yet.

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
use crate::scripts::CallBy;
use crate::server::Credentials;
use crate::server::credentials::{BoxError, Provider};

/// Configures and connects a client. Created by
/// [`SemaphoreClient::builder`](crate::SemaphoreClient::builder).
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
            access: Access::Full,
        };
        let (client_name, call_by, credentials) = (None, CallBy::Sha1, None);
        let prefix = "sem".to_owned();
        Self {
            prefix,
            client_name,
            call_by,
            settings,
            credentials,
            connect_timeout: Duration::ZERO,
            #[cfg(feature = "tls")]
            certificates: None,
        }
    }

    /// Sets the prefix of the names of all keys and channels. Default: `sem`. A prefix has 1 to 200
    /// bytes, without braces, white space and control characters.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the label under which [`inspect`](crate::Semaphore::inspect) shows the permits and
    /// requests of this process. Default: host name and process ID. A label has 1 to 91 letters,
    /// digits, `.`, `_` and `-`.
    pub fn client_name(mut self, client_name: impl Into<String>) -> Self {
        self.client_name = Some(client_name.into());
        self
    }

    /// Sets the timeout for one command, and for each round trip while the client connects.
    /// Default: 2 s; range: 1 ms to 1 hour.
    ///
    /// After two consecutive timeouts, the connection is replaced. The timeout of a refresh is at
    /// most a sixth of the lease. A timeout that is shorter than both 200 ms and the response
    /// timeout does not count as one of the two.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.settings.response_timeout = timeout;
        self
    }

    /// Sets how long connecting is retried. Default: 0, which means one attempt.
    ///
    /// With a timeout, a program can start before its server, or during a failover. Connecting is
    /// retried after each error for which [`Error::is_transient`] returns true, and while the
    /// server's memory or disk is full. Other errors, such as a wrong password, are returned
    /// immediately. The error of a process with too many open files is also returned immediately,
    /// although this error is transient. The first failure is logged.
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

    /// Sets the heartbeat timeout: when it is the turn of a waiting request of this process, the
    /// server removes the request if no heartbeat has arrived for this long. Default: 15 s; range:
    /// 100 ms to 7 days.
    ///
    /// Heartbeats are sent at intervals of a third of this time. The reply to a heartbeat also
    /// replaces a lost grant message.
    pub fn heartbeat_timeout(mut self, heartbeat_timeout: Duration) -> Self {
        self.settings.heartbeat_timeout = heartbeat_timeout;
        self
    }

    /// Sets how long a waiting `acquire` keeps retrying while Redis does not reply. Default: 30 s.
    /// A value below twice the response timeout counts as twice the response timeout.
    pub fn outage_tolerance(mut self, tolerance: Duration) -> Self {
        self.settings.outage_tolerance = tolerance;
        self
    }

    /// Runs the scripts as Redis functions (`FCALL`) instead of with `EVALSHA`. This requires Redis
    /// 7.0 or newer, or Valkey.
    ///
    /// Functions run the scripts' code on the same keys, so clients with functions and clients with
    /// scripts share semaphores. Functions are saved and replicated with the server's data. A user
    /// may have the permission to call functions without the permission to run scripts.
    ///
    /// If a server does not have the library `redis_semaphore` (`lua/functions.lua`), the client
    /// loads it. If the server's memory is too full for the library and the user may run scripts,
    /// the client runs the scripts instead. An existing library is never replaced: after an
    /// upgrade, load the new library with `FUNCTION LOAD REPLACE`.
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
    ///     // The server is older than Redis 7.0.
    ///     Err(Error::Connect { kind: ConnectErrorKind::TooOld, reason, .. }) => println!("{reason}"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn use_functions(mut self) -> Self {
        self.call_by = CallBy::Function;
        self
    }

    /// Connects as a read-only user, with fewer permissions (see Permissions in
    /// `docs/production.md`).
    ///
    /// Connecting performs no writes and may use a replica. These calls work:
    /// [`names`](crate::SemaphoreClient::names), [`inspect`](crate::Semaphore::inspect),
    /// [`limit`](crate::Semaphore::limit) and [`doctor`](crate::SemaphoreClient::doctor). `doctor`
    /// then expects only the permissions of a read-only user.
    ///
    /// Other calls still work if the user's permissions allow them: this setting does not block
    /// writes. A call that the permissions do not allow returns [`Error::Rejected`]. In a cluster,
    /// a wait returns [`Error::Unavailable`] after the outage tolerance if the user cannot
    /// subscribe.
    ///
    /// # Examples
    ///
    /// ```
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let url = std::env::var("REDIS_URL").unwrap();
    /// let client = SemaphoreClient::builder().read_only().connect(&url).await?;
    /// println!("{:?}", client.names().await?.names);
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_only(mut self) -> Self {
        self.settings.access = Access::ReadOnly;
        self
    }

    /// Connects like [`read_only`](Self::read_only), so that
    /// [`doctor`](crate::SemaphoreClient::doctor) can report all missing permissions. Without this
    /// setting, connecting fails if a permission is missing.
    ///
    /// # Examples
    ///
    /// ```
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let url = std::env::var("REDIS_URL").unwrap();
    /// let client = SemaphoreClient::builder().for_doctor().connect(&url).await?;
    /// println!("{}", client.doctor().await?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn for_doctor(mut self) -> Self {
        self.settings.access = Access::Diagnosis;
        self
    }

    /// Sets a function that supplies credentials for every new connection, including connections to
    /// cluster nodes. Use it for rotating passwords and expiring tokens.
    ///
    /// If a provider is set, a URL or `redis::Client` with a password is rejected with
    /// [`Error::Invalid`]. The passwords of sentinels are allowed, because the provider is not used
    /// for sentinels. If the URL or client contains a user name, the provider may omit the name,
    /// but must not return a different name.
    ///
    /// The provider may take at most nine tenths of the response timeout. If the provider fails, or
    /// the server rejects the password, the connect fails. A failed reconnect is retried, but not a
    /// failed first connect. Existing connections are kept. With `connect_sentinel` (feature
    /// `sentinel`), redis-rs checks the primary's role with the credentials of the
    /// `SentinelClient`.
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

    /// Sets the certificates for TLS connections (`rediss://`): the authorities that may sign the
    /// server's certificate, and a certificate of this client. Default: the authorities that the
    /// system trusts, and no client certificate.
    ///
    /// Certificates are in PEM format and are read when the client connects. To use new
    /// certificates, connect again.
    ///
    /// TLS uses rustls, with the cryptography provider that the program has installed
    /// (`CryptoProvider::install_default`), or ring if no provider is installed. This crate
    /// installs no provider, so the program can install a provider later. However, a
    /// `redis::Client` or `SentinelClient` with its own certificates is connected by redis-rs,
    /// which makes rustls install a provider.
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
    ///     // None if the server requires no client certificate.
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

    /// Sets the maximum number of distinct semaphore names that become labels of metrics. Default:
    /// 100.
    ///
    /// The names of the semaphores that are built first become labels. All other semaphores are
    /// counted under the label `{other}`. Use 0 if names contain, for example, user or order IDs.
    /// Requires the feature `metrics`.
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

/// Returns the host name and process ID, without the characters that a client name must not
/// contain.
pub(crate) fn default_client_name() -> String {
    const MAX_HOST: usize = 64;
    let host = gethostname::gethostname().to_string_lossy().into_owned();
    let host: String = host.chars().filter(may_be_in_client_name).take(MAX_HOST).collect();
    format!("{}.{}", if host.is_empty() { "host" } else { &host }, std::process::id())
}
