//! The ways to connect: to one server, to the primary among some, and to a cluster.

use std::sync::Arc;

use futures_util::FutureExt;
use redis::ConnectionInfo;
use tokio::runtime::Handle;

use crate::client::builder::default_client_name;
use crate::client::{SemaphoreClient, SemaphoreClientBuilder};
use crate::context::Context;
use crate::diagnosis::connect;
use crate::error::Error;
use crate::metrics::Meters;
use crate::protocol::id;
use crate::runtime::clock;
#[cfg(feature = "tls")]
use crate::server::tls::Tls;
use crate::server::{
    Cluster, Dialer, IntoServer, Link, Sentinels, Servers, Source, check_all_alike, server_of,
};
use crate::wakeup::{Channel, Channels, Listener, Router, Wakeups};

impl SemaphoreClientBuilder {
    /// Connects, and checks that the server can do what the scripts need.
    /// [`SemaphoreClient::connect`] says how a URL looks.
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
    /// See [`SemaphoreClientBuilder`].
    pub async fn connect(self, url: &str) -> Result<SemaphoreClient, Error> {
        self.connect_client(redis::Client::open(server_of("url", url)?)?).await
    }

    /// As [`connect`](Self::connect), with a client of your own: with settings of TCP, for
    /// instance.
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
    /// # use redis_semaphore::{Error, SemaphoreClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// let client = redis_semaphore::redis::Client::open(std::env::var("REDIS_URL").unwrap())?;
    /// let client = SemaphoreClient::builder().connect_client(client).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Certificates are given to `SemaphoreClientBuilder::certificates` rather than to the client.
    pub async fn connect_client(self, client: redis::Client) -> Result<SemaphoreClient, Error> {
        self.connect_one(Source::Client(Box::new(client))).await
    }

    /// Connects to whichever of these servers is the primary, and follows it: after a failover they
    /// are asked again. Neither calls nor wake-ups ever go to a replica. For servers that something
    /// else than Sentinel or a cluster promotes. URLs are as for [`SemaphoreClient::connect`]: see
    /// [`IntoServer`].
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
        let clients: Vec<redis::Client> = infos("servers", servers)?
            .into_iter()
            .map(redis::Client::open)
            .collect::<Result<_, _>>()?;
        if clients.is_empty() {
            return Err(Error::invalid("servers", "at least one must be given"));
        }
        self.connect_one(Source::PrimaryOf(clients)).await
    }

    /// Connects to the primary that Redis Sentinel names, and follows it: after a failover the
    /// sentinels are asked again. Neither calls nor wake-ups ever go to a replica. User and
    /// password of the sentinels stand in their own URLs. `primary` says how to log in at the
    /// primary: user, password, database, and whether it speaks TLS. Its host and port do not
    /// count.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect), of the kind
    /// [`NoPrimary`](crate::ConnectErrorKind::NoPrimary) when no sentinel knows the service, or
    /// when its primary is marked down. The address is the one that failed: of a sentinel, or of
    /// the primary that a sentinel names.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is left behind.
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
        // The database in their URLs is that of the primary.
        let without_database = |info: ConnectionInfo| {
            let settings = info.redis_settings().clone().set_db(0);
            redis::Client::open(info.set_redis_settings(settings))
        };
        let sentinels: Vec<_> = infos("sentinels", sentinels)?
            .into_iter()
            .map(without_database)
            .collect::<Result<_, _>>()?;
        if sentinels.is_empty() {
            return Err(Error::invalid("sentinels", "at least one must be given"));
        }
        let primary = server_of("primary", primary)?;
        let sentinels = Sentinels { sentinels, service: service.to_owned(), primary };
        self.connect_one(Source::Sentinels(Box::new(sentinels))).await
    }

    /// Connects to the primary that Redis Sentinel names, and follows it: after a failover the
    /// sentinels are asked again. Neither calls nor wake-ups ever go to a replica.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect), of the kind
    /// [`NoPrimary`](crate::ConnectErrorKind::NoPrimary) when no sentinel knows the service.
    /// Sentinels are asked one after the other, a second each where they are silent, and ten in
    /// all. redis-rs does not tell which address failed:
    /// [`connect_sentinels`](Self::connect_sentinels) does.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is left behind.
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
            let reason = "those for sentinels, and for the primary that they name, are given to the \
                          SentinelClientBuilder";
            return Err(Error::invalid("certificates", reason));
        }
        self.connect_one(Source::Sentinel(Arc::new(tokio::sync::Mutex::new(client)))).await
    }

    /// Connects to a cluster of Redis 7.0 or newer, or of Valkey. A few of its nodes are enough,
    /// the others are found, also those that come later. User, password and certificates are those
    /// of the first one.
    ///
    /// Each semaphore is on one node, so many semaphores spread over the cluster. Its calls and
    /// wake-ups follow it when its slot moves or the node fails over.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect), of the kind [`Cluster`](crate::ConnectErrorKind::Cluster)
    /// when it is no cluster, and [`TooOld`](crate::ConnectErrorKind::TooOld) when it has no
    /// sharded channels. Nodes are asked three at a time: while all three are silent, for the
    /// response timeout.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is left behind.
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
        let (dialer, home) = (self.dialer("nodes", &nodes)?, home()?);
        let new_cluster = || {
            Cluster::new(nodes.clone(), self.call_by, dialer.clone(), home.clone()).map(Arc::new)
        };
        let connect = || {
            let (cluster, prefix, access) = (new_cluster(), self.prefix.clone(), self.access);
            let connect = async move {
                let cluster = cluster?;
                connect::check_cluster(&cluster, &prefix, access).await?;
                Ok(cluster)
            };
            connect.boxed()
        };
        let cluster = self.persist(&new_cluster()?.to_string(), connect).await?;
        let listener = Listener::Sharded(cluster.clone());
        let wakeups = Wakeups::Sharded(Channels::default());
        let name = self.new_client();
        Ok(self.start(name, Servers::Cluster(cluster), wakeups, listener))
    }

    async fn connect_one(self, source: Source) -> Result<SemaphoreClient, Error> {
        self.check()?;
        let dialer = self.dialer("url", source.servers())?;
        let (home, name) = (home()?, self.new_client());
        let channel = Arc::new(Channel::of_process(&self.prefix, &name));
        let server = source.to_string();
        let connect = || {
            let link = Link::new(source.clone(), self.call_by, dialer.clone(), home.clone());
            let (link, prefix) = (Arc::new(link), self.prefix.clone());
            let (channel, access) = (channel.clone(), self.access);
            let connect = async move {
                let subscription = connect::check_one(&link, &prefix, &channel, access).await?;
                Ok((link, subscription))
            };
            connect.boxed()
        };
        let (link, subscription) = self.persist(&server, connect).await?;
        let listener = Listener::Single(link.clone(), subscription);
        Ok(self.start(name, Servers::One(link), Wakeups::Process(channel), listener))
    }

    /// For these servers, which must not have a password of their own beside a provider's: that may
    /// change.
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
                "it has a password, and a provider is asked for one: leave out one of the two";
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

    /// The name of this process.
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

/// The runtime that makes all calls from now on.
fn home() -> Result<Handle, Error> {
    if clock::is_paused() {
        let reason =
            format!("{}: resume it before you connect (tokio::time::resume)", clock::PAUSED);
        return Err(Error::invalid("runtime", reason));
    }
    current_home()
}

/// Where no sockets are needed.
pub(super) fn current_home() -> Result<Handle, Error> {
    Handle::try_current().map_err(|_| {
        let reason = "connecting needs one of tokio, with enable_all(), that goes on running: call it \
                      in #[tokio::main], or in Runtime::block_on";
        Error::invalid("runtime", reason)
    })
}

fn infos<T: IntoServer>(
    what: &'static str,
    servers: impl IntoIterator<Item = T>,
) -> Result<Vec<ConnectionInfo>, Error> {
    servers.into_iter().map(|server| server_of(what, server)).collect()
}
