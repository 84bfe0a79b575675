use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{ConnectionInfo, IntoConnectionInfo};
use tokio::runtime::Handle;

use crate::client::{ClientSettings, Shared};
use crate::credentials::{BoxError, Provider};
use crate::keys::{check_name, check_word};
use crate::registry::{CallBy, Library};
use crate::servers::{Cluster, Dialer, Link, Servers, Source};
use crate::wakeups::{Channel, Channels, Listener, Wakeups};
use crate::{Credentials, Error, Semaphores, clock, connect, tls, url, worker};

/// As it is published: `lua/functions.lua`.
const FUNCTIONS: Library = Library { name: "redis_semaphore", prefix: "sem_" };
const MAX_OWNER: usize = 128;

/// Settings of the connection. From [`Semaphores::builder`].
///
/// # Examples
///
/// ```
/// # use std::time::Duration;
/// # use redis_semaphore::{Error, Semaphores};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let semaphores = Semaphores::builder()
///     .prefix("shop:sem")
///     .owner("importer-7")
///     .response_timeout(Duration::from_secs(1))
///     .connect(&std::env::var("REDIS_URL").unwrap())
///     .await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "connect() connects"]
#[derive(Clone)]
pub struct SemaphoresBuilder {
    prefix: String,
    owner: Option<String>,
    call_by: CallBy,
    settings: ClientSettings,
    credentials: Option<Arc<dyn Provider>>,
}

impl fmt::Debug for SemaphoresBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SemaphoresBuilder")
            .field("prefix", &self.prefix)
            .field("owner", &self.owner)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl SemaphoresBuilder {
    pub(crate) fn new() -> Self {
        let settings = ClientSettings {
            response_timeout: Duration::from_secs(2),
            liveness: Duration::from_secs(15),
            outage_tolerance: Duration::from_secs(30),
        };
        let (owner, call_by, credentials) = (None, CallBy::Sha1, None);
        Self { prefix: "sem".to_owned(), owner, call_by, settings, credentials }
    }

    /// What the names of all keys and channels begin with; `sem` unless set. 1 to 200 bytes, no
    /// braces, no white space or control characters.
    ///
    /// # Examples
    ///
    /// See [`SemaphoresBuilder`].
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The label under which [`inspect`](crate::Semaphore::inspect) shows the permits of this
    /// process; host name and process id unless set. 1 to 128 bytes, no white space or control
    /// characters, no `+` in front.
    ///
    /// # Examples
    ///
    /// See [`SemaphoresBuilder`].
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// How long to wait for the answer to one command, or for a connection: 2 s unless set, 1 ms
    /// to 1 hour. After two of them in a row without an answer the connection is replaced.
    ///
    /// # Examples
    ///
    /// See [`SemaphoresBuilder`].
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.settings.response_timeout = timeout;
        self
    }

    /// After how long without a sign of life the server takes our waiting requests for dead, and
    /// the next in the queue are served: 15 s unless set, 100 ms to 7 days. A sign is given every
    /// third of it, and any lost wake-up is noticed then.
    ///
    /// # Examples
    ///
    /// See [`SemaphoresBuilder`].
    pub fn liveness(mut self, liveness: Duration) -> Self {
        self.settings.liveness = liveness;
        self
    }

    /// For how long a wait survives that Redis does not answer: 30 s unless set.
    ///
    /// # Examples
    ///
    /// See [`SemaphoresBuilder`].
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
    /// the library `redis_semaphore` (`lua/functions.lua`); while its memory is too full for that, the
    /// scripts are called, if the user may. A library that is there is used as it is: after an
    /// upgrade, load the new one with `FUNCTION LOAD REPLACE`.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_semaphore::Error> {
    /// # let url = std::env::var("REDIS_URL").unwrap();
    /// use redis_semaphore::{ConnectErrorKind, Error, Semaphores};
    ///
    /// match Semaphores::builder().use_functions().connect(&url).await {
    ///     Ok(semaphores) => drop(semaphores.semaphore("jobs").limit(3).build()?.acquire().await?),
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

    /// Asked for a password before each connection: for those of commands, of messages and of
    /// acknowledgements, and to each node of a cluster. For passwords that change, and tokens that
    /// expire. What the URL or client says of user and password does not count then.
    ///
    /// It may take nine tenths of the response timeout: what is left is for the server. When it
    /// fails, connecting fails, and is tried again as after any other failure; so it is when the
    /// server refuses the password, which may be about to change. Connections that are there stay.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use redis_semaphore::{Credentials, Semaphores};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redis_semaphore::Error> {
    /// let semaphores = Semaphores::builder()
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
        self.credentials = Some(Arc::new(provider));
        self
    }

    /// Connects, and checks that the server can do what the scripts need: see there for the URL.
    ///
    /// # Errors
    ///
    /// [`Error::Connect`], whose [`kind`](crate::ConnectErrorKind) tells why: the server cannot be
    /// reached within the response timeout, refuses the password, is older than Redis 6.2 or a
    /// replica, the user lacks a right. [`Error::Invalid`] when the URL or a setting cannot work.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is left behind.
    ///
    /// # Examples
    ///
    /// See [`SemaphoresBuilder`].
    pub async fn connect(self, url: &str) -> Result<Semaphores, Error> {
        let client = redis::Client::open(url);
        self.connect_client(client.map_err(|error| url::explain(url, &error))?).await
    }

    /// As [`connect`](Self::connect), with a client of your own: with certificates, for instance.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is left behind.
    ///
    /// # Examples
    ///
    /// ```
    /// # use redis_semaphore::{Error, Semaphores};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// let client = redis_semaphore::redis::Client::open(std::env::var("REDIS_URL").unwrap())?;
    /// let semaphores = Semaphores::builder().connect_client(client).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Over TLS (the feature `tls`), to a server whose certificate an authority of your own has
    /// signed, and which wants one from its clients. The files are in PEM format, and are read once:
    /// connect anew for new ones.
    ///
    #[cfg_attr(feature = "tls", doc = "```no_run")]
    #[cfg_attr(not(feature = "tls"), doc = "```text")]
    /// # use redis_semaphore::Semaphores;
    /// use redis_semaphore::redis::{Client, ClientTlsConfig, TlsCertificates};
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
    /// let client = Client::build_with_tls("rediss://redis.example:6380/", certificates)?;
    /// let semaphores = Semaphores::builder().connect_client(client).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect_client(self, client: redis::Client) -> Result<Semaphores, Error> {
        self.connect_one(Source::Client(Box::new(client))).await
    }

    /// Connects to whichever of these servers is the primary, and follows it: after a failover they
    /// are asked again. Neither calls nor wake-ups ever go to a replica. For servers that something
    /// else than Sentinel or a cluster promotes.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect); [`Error::Connect`] of the kind
    /// [`NoPrimary`](crate::ConnectErrorKind::NoPrimary) when none of them is a primary.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is left behind.
    ///
    /// # Examples
    ///
    /// ```
    /// # use redis_semaphore::{Error, Semaphores};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let url = std::env::var("REDIS_URL").unwrap();
    /// let urls = [url.as_str(), "redis://127.0.0.1:1/"];
    /// let semaphores = Semaphores::builder().connect_primary_of(urls).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect_primary_of<T: IntoConnectionInfo>(
        self,
        servers: impl IntoIterator<Item = T>,
    ) -> Result<Semaphores, Error> {
        let clients: Vec<redis::Client> = infos("servers", servers)?
            .into_iter()
            .map(redis::Client::open)
            .collect::<Result<_, _>>()
            .map_err(|error| url::explain_part("servers", &error))?;
        if clients.is_empty() {
            return Err(Error::invalid("servers", "at least one must be given"));
        }
        self.connect_one(Source::PrimaryOf(clients)).await
    }

    /// Connects to the primary that Redis Sentinel names, and follows it: after a failover the
    /// sentinels are asked again. Neither calls nor wake-ups ever go to a replica.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect), of the kind
    /// [`NoPrimary`](crate::ConnectErrorKind::NoPrimary) when no sentinel knows the service.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is left behind.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use redis_semaphore::{Error, Semaphores};
    /// use redis_semaphore::redis::sentinel::{SentinelClient, SentinelServerType};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// let sentinels = vec!["redis://sentinel-1:26379/", "redis://sentinel-2:26379/"];
    /// let service = "jobs".to_owned();
    /// let client = SentinelClient::build(sentinels, service, None, SentinelServerType::Master)?;
    /// let semaphores = Semaphores::builder().connect_sentinel(client).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "sentinel")]
    pub async fn connect_sentinel(
        self,
        client: redis::sentinel::SentinelClient,
    ) -> Result<Semaphores, Error> {
        self.connect_one(Source::Sentinel(Box::new(tokio::sync::Mutex::new(client)))).await
    }

    /// Connects to a cluster of Redis 7.0 or newer, or of Valkey. A few of its nodes are enough, the
    /// others are found, also those that come later. User, password and certificates are those of
    /// the first one.
    ///
    /// Each semaphore is on one node, so many semaphores spread over the cluster. Its calls and
    /// wake-ups follow it when its slot moves or the node fails over.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect), of the kind [`Cluster`](crate::ConnectErrorKind::Cluster)
    /// when it is no cluster, and [`TooOld`](crate::ConnectErrorKind::TooOld) when it has no sharded
    /// channels.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is left behind.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use redis_semaphore::{Error, Semaphores};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// let nodes = ["redis://redis-1:6379/", "redis://redis-2:6379/"];
    /// let semaphores = Semaphores::builder().connect_cluster(nodes).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect_cluster<T: IntoConnectionInfo>(
        self,
        nodes: impl IntoIterator<Item = T>,
    ) -> Result<Semaphores, Error> {
        self.check()?;
        tls::choose_cryptography();
        let nodes = infos("nodes", nodes)?;
        let cluster = Cluster::new(nodes, self.call_by, self.dialer(), home()?)?;
        let cluster = Arc::new(cluster);
        connect::check_cluster(&cluster, &self.prefix).await?;
        let listener = Listener::Sharded(cluster.clone());
        let wakeups = Wakeups::Sharded(Channels::default());
        Ok(self.start(Servers::Cluster(cluster), wakeups, listener))
    }

    async fn connect_one(self, source: Source) -> Result<Semaphores, Error> {
        self.check()?;
        tls::choose_cryptography();
        let link = Arc::new(Link::new(source, self.call_by, self.dialer(), home()?));
        let channel = Arc::new(Channel::of_process(&self.prefix));
        let subscription = connect::check_one(&link, &self.prefix, &channel).await?;
        let listener = Listener::Single(link.clone(), subscription);
        Ok(self.start(Servers::One(link), Wakeups::Process(channel), listener))
    }

    fn dialer(&self) -> Dialer {
        Dialer::new(self.settings.response_timeout, self.credentials.clone())
    }

    fn start(self, servers: Servers, wakeups: Wakeups, listener: Listener) -> Semaphores {
        let owner = self.owner.unwrap_or_else(default_owner);
        let shared = Shared::new(servers, self.prefix, owner, wakeups, self.settings);
        Semaphores::new(worker::start(Arc::new(shared), listener))
    }

    fn check(&self) -> Result<(), Error> {
        const LONGEST_RESPONSE: Duration = Duration::from_secs(60 * 60);
        const LONGEST_LIVENESS: Duration = Duration::from_secs(7 * 24 * 60 * 60);
        check_name("prefix", &self.prefix)?;
        check_word("prefix", &self.prefix, 200)?;
        if let Some(owner) = &self.owner {
            check_word("owner", owner, MAX_OWNER)?;
        }
        let ClientSettings { response_timeout, liveness, .. } = self.settings;
        if response_timeout < Duration::from_millis(1) || response_timeout > LONGEST_RESPONSE {
            let reason = format!("must be 1 ms to 1 hour, not {response_timeout:?}");
            return Err(Error::invalid("response_timeout", reason));
        }
        if liveness < Duration::from_millis(100) || liveness > LONGEST_LIVENESS {
            let reason = format!("must be 100 ms to 7 days, not {liveness:?}");
            return Err(Error::invalid("liveness", reason));
        }
        Ok(())
    }
}

/// The runtime that makes all calls from now on.
fn home() -> Result<Handle, Error> {
    if clock::is_paused() {
        let reason =
            format!("{}: resume it before you connect (tokio::time::resume)", clock::PAUSED);
        return Err(Error::invalid("runtime", reason));
    }
    Handle::try_current().map_err(|_| {
        let reason = "connecting needs one of tokio, with enable_all(), that goes on running: call it \
                      in #[tokio::main], or in Runtime::block_on";
        Error::invalid("runtime", reason)
    })
}

fn infos<T: IntoConnectionInfo>(
    what: &'static str,
    servers: impl IntoIterator<Item = T>,
) -> Result<Vec<ConnectionInfo>, Error> {
    let infos = servers.into_iter().map(|server| server.into_connection_info());
    infos.collect::<Result<_, _>>().map_err(|error| url::explain_part(what, &error))
}

/// Host and process, with nothing in it that an id may not have.
fn default_owner() -> String {
    let host = gethostname::gethostname().to_string_lossy().into_owned();
    let allowed = |c: &char| c.is_ascii_alphanumeric() || "-_.".contains(*c);
    let host: String = host.chars().filter(allowed).take(MAX_OWNER / 2).collect();
    format!("{}:{}", if host.is_empty() { "host" } else { &host }, std::process::id())
}
