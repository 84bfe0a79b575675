//! N1 to N4: the share of the possible turns that is taken over a network. N7 and N7a: the load of
//! N1 over TLS with a new certificate, and in a cluster.

use std::time::Duration;

use redis::{Client, TlsCertificates};
use redis_semaphore::{Error, SemaphoreClient};
use test_support::cluster::Cluster;
use test_support::delay::Delay;
use test_support::proxy::Proxy;
use test_support::tls::TlsServer;

use crate::load::{Load, TYPICAL};
use crate::network::{FAR, NEAR, round_trip, steady_network};
use crate::support::Result;
use crate::support::baseline::Baseline;
use crate::support::figure::Figure;
use crate::support::rounds::{Rounds, length_of, rounds_of};

const ROUNDS: usize = 5;
/// The time in which turns are counted.
const ROUND: Duration = Duration::from_secs(2);

pub async fn n1() -> Result<Vec<Figure>> {
    over_network("N1", "1 ms one way: limit 10, 100 tasks, 5 ms of work", NEAR, TYPICAL).await
}

pub async fn n2() -> Result<Vec<Figure>> {
    let load = Load { limit: 4, tasks: 20, work: Duration::from_millis(2) };
    over_network("N2", "1 ms one way: limit 4, 20 tasks, 2 ms of work", NEAR, load).await
}

pub async fn n3() -> Result<Vec<Figure>> {
    over_network("N3", "10 ms one way: limit 10, 100 tasks, 5 ms of work", FAR, TYPICAL).await
}

pub async fn n4() -> Result<Vec<Figure>> {
    let load = Load { limit: 1, tasks: 10, work: Duration::from_millis(5) };
    over_network("N4", "10 ms one way: limit 1, 10 tasks, 5 ms of work", FAR, load).await
}

/// Measures nothing if the server was built without TLS.
pub async fn n7() -> Result<Vec<Figure>> {
    let Some(server) = TlsServer::start("127.0.0.1", &["--tls-auth-clients", "no"]) else {
        eprintln!("N7 was not measured: the server was built without TLS");
        return Ok(Vec::new());
    };
    let proxy = Proxy::start_with_delay(server.port, Delay::of(NEAR));
    let root_cert = Some(server.authority.root_cert());
    let certificates = TlsCertificates { client_tls: None, root_cert };
    let url = format!("rediss://127.0.0.1:{}/", proxy.port());
    let client = Client::build_with_tls(url, certificates)?;
    let connect = async || SemaphoreClient::builder().connect_client(client.clone()).await;
    share("N7", "N1 over TLS", TYPICAL, &client, connect).await
}

/// Measures nothing if the server is older than 7.0. One node has all slots, and announces the
/// proxy's address to clients.
pub async fn n7a() -> Result<Vec<Figure>> {
    let proxy = Proxy::start_with_delay(0, Delay::of(NEAR));
    let port = proxy.port().to_string();
    let options = ["--cluster-announce-ip", "127.0.0.1", "--cluster-announce-port", &port];
    let cluster = Cluster::form(1, false, &options);
    if cluster.nodes[0].is_older_than_7() {
        eprintln!("N7a was not measured: the server is older than 7.0");
        return Ok(Vec::new());
    }
    proxy.lead_to(cluster.nodes[0].port);
    let url = format!("redis://127.0.0.1:{port}/");
    let connect = async || SemaphoreClient::builder().connect_cluster([url.as_str()]).await;
    share("N7a", "N1 in a cluster", TYPICAL, &Client::open(&*url)?, connect).await
}

async fn over_network(
    id: &'static str,
    what: &'static str,
    one_way: Duration,
    load: Load,
) -> Result<Vec<Figure>> {
    let (_network, client) = steady_network(one_way)?;
    let connect = async || SemaphoreClient::builder().connect_client(client.clone()).await;
    share(id, what, load, &client, connect).await
}

/// Measures the share on the server to which this client connects.
async fn share(
    id: &'static str,
    what: &'static str,
    load: Load,
    client: &Client,
    connect: impl AsyncFn() -> std::result::Result<SemaphoreClient, Error>,
) -> Result<Vec<Figure>> {
    let baseline = Baseline::at(client).await?;
    let mut rounds = Rounds::default();
    for _ in 0..rounds_of(ROUNDS) {
        // The round trip is measured while no other call is under way.
        let round_trip = round_trip(&baseline).await?;
        let semaphores = connect().await?;
        rounds.add(load.turns_of_ours(semaphores, round_trip, length_of(ROUND)).await?);
    }
    Ok(vec![Figure::of(id, what, "/s", &rounds).ratio_at_least(0.93)])
}
