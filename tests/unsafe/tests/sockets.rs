//! The TCP options of connections, read from the sockets of this process.

use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{Client, IntoConnectionInfo};
use redis_semaphore::{Credentials, Error, SemaphoreClient};

use test_support::acl;
use test_support::cluster::Cluster;
use test_support::observer::eventually;
use test_support::proxy::{Flow, Proxy};
use test_support::replicated::{Pair, Sentinels};
use test_support::server::{Server, unique_name};
use test_support::tls::TlsServer;

#[derive(Debug, PartialEq)]
struct Options {
    nodelay: bool,
    keepalive: Option<Duration>,
    user_timeout: Option<Duration>,
}

const USUAL: Options = Options {
    nodelay: true,
    keepalive: Some(Duration::from_secs(10)),
    // This is twice the default response timeout.
    user_timeout: Some(Duration::from_secs(4)),
};

/// Returns the options of each connection to this port.
fn sockets_to(port: u16) -> Vec<Options> {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let open = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<RawFd>().ok());
    open.filter_map(|number| {
        // SAFETY: another thread may have closed this descriptor. In that case, the options may be
        // wrong or missing, but the next call reads them again.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        let socket = SockRef::from(&descriptor);
        let peer = socket.peer_addr().ok()?.as_socket()?;
        if peer.port() != port {
            return None;
        }
        let is_kept = socket.keepalive().unwrap();
        Some(Options {
            nodelay: socket.tcp_nodelay().unwrap(),
            keepalive: is_kept.then(|| socket.tcp_keepalive_time().unwrap()),
            user_timeout: socket.tcp_user_timeout().unwrap(),
        })
    })
    .collect()
}

/// Waits for the usual options, because a socket exists before its options are set.
async fn has_usual(what: &str, port: u16, count: usize) {
    let is_usual = |sockets: &Vec<Options>| {
        sockets.len() == count && sockets.iter().all(|socket| *socket == USUAL)
    };
    eventually(what, async || sockets_to(port), is_usual).await;
}

/// Requests acknowledgments of replicas over one more connection to this port. The server never
/// reports enough acknowledgments.
async fn acknowledges(client: &SemaphoreClient, name: String, server: &Server, port: u16) {
    server.grant("+wait");
    let builder = client.semaphore(name).limit(1).acquire_timeout(Duration::from_secs(20));
    let wanted = builder.acknowledged_by(2, Duration::from_millis(1));
    let semaphore = wanted.build().unwrap();
    let refused = semaphore.acquire().await.unwrap_err();
    assert!(matches!(refused, Error::NotAcknowledged { .. }), "{refused}");
    has_usual("acknowledgements, too", port, 3).await;
}

#[tokio::test]
async fn connections_to_one_server_have_the_usual_tcp_options() {
    let server = Server::start();
    server.grant("+role");
    let (url, builder) = (server.url(), SemaphoreClient::builder);
    let client = SemaphoreClient::connect(&url).await.unwrap();
    has_usual("commands and messages", server.port, 2).await;
    acknowledges(&client, unique_name(), &server, server.port).await;
    drop(client);
    has_usual("no connections", server.port, 0).await;

    let client = builder().connect_primary_of([&*url, "redis://127.0.0.1:1/"]).await.unwrap();
    has_usual("the primary in a list", server.port, 2).await;
    drop(client);
    has_usual("no connections", server.port, 0).await;

    let provider =
        async || Ok::<_, std::io::Error>(Credentials::new(acl::PASSWORD).username(acl::USER));
    let builder = builder().credentials_provider(provider);
    let client = builder.connect(&server.admin_url()).await.unwrap();
    has_usual("with a provider", server.port, 2).await;
    drop(client);
}

#[tokio::test]
async fn connections_of_a_given_redis_client_keep_its_keepalive_and_user_timeout() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let client = SemaphoreClient::builder().connect_client(client).await.unwrap();
    has_usual("with a client", server.port, 2).await;
    drop(client);
    has_usual("no connections", server.port, 0).await;

    // The client's own settings are kept, except for a setting that would delay every call.
    let keepalive = Duration::from_secs(77);
    let settings = TcpSettings::default().set_nodelay(false);
    let settings = settings.set_keepalive(TcpKeepalive::new().with_time(keepalive));
    let settings = settings.set_user_timeout(Duration::from_secs(33));
    let info = server.url().into_connection_info().unwrap().set_tcp_settings(settings);
    let client = Client::open(info).unwrap();
    let client = SemaphoreClient::builder().connect_client(client).await.unwrap();
    let wanted = |sockets: &Vec<Options>| {
        let user_timeout = Some(Duration::from_secs(33));
        let wanted = Options { nodelay: true, keepalive: Some(keepalive), user_timeout };
        sockets.len() == 2 && sockets.iter().all(|socket| *socket == wanted)
    };
    eventually("its own settings", async || sockets_to(server.port), wanted).await;
    drop(client);
}

/// The doctor subscribes for a moment.
#[tokio::test]
async fn the_connection_of_the_doctor_has_the_usual_tcp_options() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let client = SemaphoreClient::connect(&proxy.url()).await.unwrap();
    has_usual("commands and messages", proxy.port(), 2).await;
    proxy.messages(Flow::Hold);
    let examined = tokio::spawn({
        let client = client.clone();
        async move { client.doctor().await }
    });
    has_usual("one that tries to listen", proxy.port(), 3).await;
    proxy.messages(Flow::Pass);
    examined.await.unwrap().unwrap();
}

#[tokio::test]
async fn connections_to_the_nodes_of_a_cluster_have_the_usual_tcp_options() {
    let Some(cluster) = Cluster::start(2, false).await else { return };
    let client = SemaphoreClient::builder().connect_cluster(cluster.urls()).await.unwrap();
    let mut waits = Vec::new();
    for node in 0..2 {
        let semaphore = client.semaphore(cluster.name_at(node)).limit(1).build().unwrap();
        let held = semaphore.acquire().await.unwrap();
        waits.push((semaphore, held));
    }
    for node in &cluster.nodes {
        has_usual("commands and messages", node.port, 2).await;
    }
    let node = &cluster.nodes[1];
    acknowledges(&client, cluster.name_at(1), node, node.port).await;
}

/// For servers that were built without TLS, see `TlsServer::start`.
#[tokio::test]
async fn connections_over_tls_have_the_usual_tcp_options() {
    let Some(tls) = TlsServer::start("127.0.0.1", &[]) else { return };
    let client_tls = Some(tls.authority.certificate("a client"));
    let certificates =
        redis::TlsCertificates { client_tls, root_cert: Some(tls.authority.root_cert()) };
    let client = Client::build_with_tls(tls.url(), certificates);
    let client = SemaphoreClient::builder().connect_client(client.unwrap()).await.unwrap();
    has_usual("commands and messages", tls.port, 2).await;
    acknowledges(&client, unique_name(), &tls.server, tls.port).await;
}

#[tokio::test]
async fn connections_to_the_primary_of_sentinels_have_the_usual_tcp_options() {
    let pair = Pair::start();
    let sentinels = Sentinels::watch(&pair);
    let client = SemaphoreClient::builder().connect_sentinel(sentinels.client()).await.unwrap();
    let server = &pair.servers[0];
    has_usual("commands and messages", server.port, 2).await;
    acknowledges(&client, unique_name(), server, server.port).await;
}
