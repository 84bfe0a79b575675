//! Connects to one server, to the primary of several servers, and to a cluster.

use std::sync::Arc;
use std::time::Instant;

use redis::ConnectionInfo;
use tokio::runtime::Handle;

use crate::client::builder::default_client_name;
use crate::client::{SemaphoreClient, SemaphoreClientBuilder};
use crate::context::Context;
use crate::diagnosis::connect;
use crate::error::Error;
use crate::metrics::Meters;
use crate::protocol::id;
#[cfg(feature = "tls")]
use crate::server::tls::Tls;
use crate::server::{
    Cluster, Dialer, IntoServer, Link, Sentinels, Servers, Source, check_all_alike, server_of,
};
use crate::wakeup::{Channel, Channels, Listener, Router, Wakeups};

impl SemaphoreClientBuilder {
    /// Connects, and checks that the server supports everything that the scripts need. For the form
    /// of a URL, see [`SemaphoreClient::connect`].
    ///
    /// # Errors
    ///
    /// - [`Error::Connect`]: no usable connection was made. The field
    ///   [`kind`](crate::ConnectErrorKind) is the reason, such as a wrong password, a missing
    ///   permission, a replica, or a server that is older than Redis 6.2.
    /// - [`Error::Invalid`]: the URL or a setting is invalid.
    ///
    /// # Cancel safety
    ///
    /// Safe. A canceled call leaves nothing behind.
    pub async fn connect(self, url: &str) -> Result<SemaphoreClient, Error> {
        self.connect_client(redis::Client::open(server_of("url", url)?)?).await
    }

    /// Connects with a custom client, for example a client with TCP settings. Set certificates with
    /// `SemaphoreClientBuilder::certificates` rather than in the client.
    ///
    /// # Errors
    ///
    /// See [`connect`](Self::connect). In addition:
    ///
    /// - [`Error::Invalid`]: the client's host is not a valid host.
    ///
    /// # Cancel safety
    ///
    /// Safe. A canceled call leaves nothing behind.
    ///
    /// # Examples
    ///
    /// ```
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// let client = redis_semaphore::redis::Client::open(std::env::var("REDIS_URL").unwrap())?;
    /// let client = SemaphoreClient::builder().connect_client(client).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect_client(self, client: redis::Client) -> Result<SemaphoreClient, Error> {
        client.get_connection_info().clone().into_server()?;
        self.connect_one(Source::Client(Box::new(client))).await
    }

    /// Connects to the primary among these servers and, after a failover, to the new primary.
    ///
    /// After a failover, all servers are checked again. Calls and grant messages never use a
    /// replica. Use this method if something other than Sentinel or a cluster promotes the primary.
    /// For the forms of a URL, see [`IntoServer`]. All URLs have the same database.
    ///
    /// # Errors
    ///
    /// See [`connect`](Self::connect). In addition:
    ///
    /// - [`Error::Invalid`] if two URLs have different databases.
    /// - [`Error::Connect`] of the kind [`NoPrimary`](crate::ConnectErrorKind::NoPrimary): none of
    ///   the servers is a primary, or two of them are. Two primaries would both grant permits. A
    ///   second primary is not noticed if its reply takes 100 ms longer than that of the first.
    ///
    /// # Cancel safety
    ///
    /// Safe. A canceled call leaves nothing behind.
    ///
    /// # Examples
    ///
    /// ```
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let url = std::env::var("REDIS_URL").unwrap();
    /// let urls = [url.as_str(), "redis://127.0.0.1:1/"];
    /// let client = SemaphoreClient::builder().connect_primary_of(urls).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect_primary_of<T: IntoServer>(
        self,
        servers: impl IntoIterator<Item = T>,
    ) -> Result<SemaphoreClient, Error> {
        let servers = infos("servers", servers)?;
        let mut databases = servers.iter().map(|server| server.redis_settings().db());
        let Some(first) = databases.next() else {
            return Err(Error::invalid("servers", "at least one must be given"));
        };
        if let Some(other) = databases.find(|database| *database != first) {
            let reason = format!(
                "the database must be the same in all URLs, because a replica has the permits in \
                 the database of its primary: found {first} and {other}"
            );
            return Err(Error::invalid("servers", reason));
        }
        let clients = servers.into_iter().map(redis::Client::open).collect::<Result<_, _>>()?;
        self.connect_one(Source::PrimaryOf(clients)).await
    }

    /// Connects to the primary that Redis Sentinel names and, after a failover, to the new primary.
    ///
    /// After a failover, the sentinels are queried again. Calls and grant messages never use a
    /// replica. The sentinels' own URLs contain the user and password of the sentinels. `primary`
    /// contains the primary's user, password, database and TLS setting. The host and port of
    /// `primary` are ignored. A sentinel's URL may repeat the database of `primary`.
    ///
    /// # Errors
    ///
    /// See [`connect`](Self::connect). In addition:
    ///
    /// - [`Error::Connect`] of the kind [`NoPrimary`](crate::ConnectErrorKind::NoPrimary): no
    ///   sentinel knows the service, or the service's primary is marked as down.
    ///
    /// The error contains the address that failed: the address of a sentinel, or of the primary
    /// that a sentinel names.
    ///
    /// # Cancel safety
    ///
    /// Safe. A canceled call leaves nothing behind.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// let sentinels = ["redis://sentinel-1:26379/", "redis://sentinel-2:26379/"];
    /// let primary = "redis://importer:secret@primary/3";
    /// let client = SemaphoreClient::builder().connect_sentinels(sentinels, "jobs", primary).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect_sentinels<T: IntoServer>(
        self,
        sentinels: impl IntoIterator<Item = T>,
        service: &str,
        primary: impl IntoServer,
    ) -> Result<SemaphoreClient, Error> {
        let primary = server_of("primary", primary)?;
        let sentinels: Vec<_> = infos("sentinels", sentinels)?
            .into_iter()
            .map(|sentinel| without_database(sentinel, &primary))
            .collect::<Result<_, _>>()?;
        if sentinels.is_empty() {
            return Err(Error::invalid("sentinels", "at least one must be given"));
        }
        let sentinels = Sentinels { sentinels, service: service.to_owned(), primary };
        self.connect_one(Source::Sentinels(Box::new(sentinels))).await
    }

    /// Connects to the primary that a `SentinelClient` finds and, after a failover, to the new
    /// primary.
    ///
    /// After a failover, the sentinels are queried again. Calls and grant messages never use a
    /// replica. Sentinels are queried one after the other. Finding the primary and connecting to it
    /// may take 10 s, or four response timeouts if that is longer. Prefer
    /// [`connect_sentinels`](Self::connect_sentinels) to this method. The errors of
    /// `connect_sentinels` contain the address that failed. In this method, redis-rs does not
    /// report the address of a sentinel that failed.
    ///
    /// # Errors
    ///
    /// See [`connect`](Self::connect). In addition:
    ///
    /// - [`Error::Connect`] of the kind [`NoPrimary`](crate::ConnectErrorKind::NoPrimary): no
    ///   sentinel knows the service.
    ///
    /// # Cancel safety
    ///
    /// Safe. A canceled call leaves nothing behind.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// use redis_semaphore::redis::sentinel::{SentinelClient, SentinelServerType};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// let sentinels = vec!["redis://sentinel-1:26379/", "redis://sentinel-2:26379/"];
    /// let service = "jobs".to_owned();
    /// let client = SentinelClient::build(sentinels, service, None, SentinelServerType::Master)?;
    /// let client = SemaphoreClient::builder().connect_sentinel(client).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "sentinel")]
    pub async fn connect_sentinel(
        self,
        client: redis::sentinel::SentinelClient,
    ) -> Result<SemaphoreClient, Error> {
        #[cfg(feature = "tls")]
        if self.certificates.is_some() {
            let reason = "pass certificates for sentinels and their primary to the \
                          SentinelClientBuilder";
            return Err(Error::invalid("certificates", reason));
        }
        self.connect_one(Source::Sentinel(Arc::new(tokio::sync::Mutex::new(client)))).await
    }

    /// Connects to a cluster of Redis 7.0 or newer, or of Valkey.
    ///
    /// A few nodes are enough: the client discovers the others, including nodes that are added
    /// later. The user, password and certificates of the first node are used for all nodes.
    ///
    /// Each semaphore is stored on one node. If the semaphore's slot moves or its node fails over,
    /// calls and grant messages use the new node.
    ///
    /// # Errors
    ///
    /// See [`connect`](Self::connect). In addition:
    ///
    /// - [`Error::Connect`] of the kind [`Cluster`](crate::ConnectErrorKind::Cluster): the server
    ///   is not in cluster mode.
    /// - [`Error::Connect`] of the kind [`TooOld`](crate::ConnectErrorKind::TooOld): the cluster
    ///   does not support sharded channels.
    ///
    /// The errors mark an address that the nodes announce (`cluster-announce-ip`) and that is not
    /// in `nodes`.
    ///
    /// Up to three nodes are queried at the same time. When a query fails or times out, the next
    /// node is queried.
    ///
    /// # Cancel safety
    ///
    /// Safe. A canceled call leaves nothing behind.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// let nodes = ["redis://redis-1:6379/", "redis://redis-2:6379/"];
    /// let client = SemaphoreClient::builder().connect_cluster(nodes).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect_cluster<T: IntoServer>(
        self,
        nodes: impl IntoIterator<Item = T>,
    ) -> Result<SemaphoreClient, Error> {
        self.check()?;
        let nodes = infos("nodes", nodes)?;
        check_all_alike("nodes", &nodes)?;
        let (dialer, runtime) = (self.dialer("nodes", &nodes)?, io_runtime()?);
        let new_cluster = || {
            Cluster::new(nodes.clone(), self.call_by, dialer.clone(), runtime.clone()).map(Arc::new)
        };
        let connect = || async {
            let cluster = new_cluster()?;
            connect::check_cluster(&cluster, &self.prefix, self.settings.access).await?;
            Ok(cluster)
        };
        let cluster = self.persist(&new_cluster()?.to_string(), connect).await?;
        let channels = Arc::new(Channels::default());
        let listener = Listener::Sharded(cluster.clone(), channels.clone());
        let name = self.new_client();
        Ok(self.start(name, Servers::Cluster(cluster), Wakeups::Sharded(channels), listener))
    }

    async fn connect_one(self, source: Source) -> Result<SemaphoreClient, Error> {
        self.check()?;
        let dialer = self.dialer("url", source.servers())?;
        io_runtime()?;
        let name = self.new_client();
        let channel = Arc::new(Channel::of_process(&self.prefix, &name));
        let server = source.to_string();
        let connect = || async {
            let link = Arc::new(Link::new(source.clone(), self.call_by, dialer.clone()));
            let (prefix, access) = (&self.prefix, self.settings.access);
            let subscription = connect::check_one(&link, prefix, &channel, access).await?;
            Ok((link, subscription))
        };
        let (link, subscription) = self.persist(&server, connect).await?;
        let listener = Listener::Single(link.clone(), channel.clone(), subscription);
        Ok(self.start(name, Servers::One(link), Wakeups::Process(channel), listener))
    }

    /// Creates the dialer for these servers. If a credentials provider is set, a server with a
    /// password is rejected, because only one of the two passwords could be used.
    fn dialer<'a>(
        &self,
        what: &'static str,
        servers: impl IntoIterator<Item = &'a ConnectionInfo> + Clone,
    ) -> Result<Dialer, Error> {
        let has_password = |server: &ConnectionInfo| {
            server.redis_settings().password().is_some_and(|password| !password.is_empty())
        };
        if self.credentials.is_some() && servers.clone().into_iter().any(has_password) {
            let reason =
                "the URL has a password, and a credentials provider is set: remove one of the two";
            return Err(Error::invalid(what, reason));
        }
        let (timeout, credentials) = (self.settings.response_timeout, self.credentials.clone());
        #[cfg(feature = "tls")]
        {
            let tls = Tls::new(self.certificates.clone());
            tls.check(servers)?;
            Ok(Dialer::new(timeout, credentials, Arc::new(tls)))
        }
        #[cfg(not(feature = "tls"))]
        Ok(Dialer::new(timeout, credentials))
    }

    pub(super) fn new_client(&self) -> String {
        id::new_client(&self.client_name.clone().unwrap_or_else(default_client_name))
    }

    pub(super) fn start(
        self,
        name: String,
        servers: Servers,
        wakeups: Wakeups,
        listener: Listener,
    ) -> SemaphoreClient {
        let router = Router::new(wakeups, &name, self.settings.heartbeat_timeout);
        let (settings, meters) = (self.settings, Meters::new(self.settings.max_metric_names));
        let context = Context::new(servers, self.prefix, name, router, listener, settings, meters);
        SemaphoreClient::new(context)
    }
}

/// Returns a client for a sentinel, which has no databases. The sentinel's URL may repeat the
/// primary's database. Any other database is an error.
fn without_database(
    sentinel: ConnectionInfo,
    primary: &ConnectionInfo,
) -> Result<redis::Client, Error> {
    let settings = sentinel.redis_settings().clone();
    if settings.db() != 0 && settings.db() != primary.redis_settings().db() {
        let reason = "a sentinel has no databases: move the database to the URL of the primary";
        return Err(Error::invalid("sentinels", reason));
    }
    Ok(redis::Client::open(sentinel.set_redis_settings(settings.set_db(0)))?)
}

/// Returns the current runtime, which becomes the I/O runtime. Its clock must not be paused.
fn io_runtime() -> Result<Handle, Error> {
    let runtime = current_runtime()?;
    match clock_is_paused() {
        false => Ok(runtime),
        true => Err(Error::invalid(
            "runtime",
            "tokio's clock is paused, so every timeout would pass at once: call \
             tokio::time::resume before you connect, and do not pause it afterwards",
        )),
    }
}

/// Returns the current runtime. A server in memory accepts a paused clock.
pub(super) fn current_runtime() -> Result<Handle, Error> {
    let reason = "connecting requires a Tokio runtime with enable_all() that keeps running: call \
                  it in #[tokio::main] or Runtime::block_on";
    Handle::try_current().map_err(|_| Error::invalid("runtime", reason))
}

/// Returns whether Tokio's clock is paused. A test may pause this clock.
fn clock_is_paused() -> bool {
    let (before, started) = (tokio::time::Instant::now(), Instant::now());
    while Instant::now() <= started {}
    tokio::time::Instant::now() == before
}

fn infos<T: IntoServer>(
    what: &'static str,
    servers: impl IntoIterator<Item = T>,
) -> Result<Vec<ConnectionInfo>, Error> {
    servers.into_iter().map(|server| server_of(what, server)).collect()
}
