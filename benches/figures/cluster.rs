//! N7a: the figure N1 in a cluster. One node has all slots, and announces the network's address to
//! clients.

use std::net::{Ipv4Addr, TcpListener};

use redis_semaphore::SemaphoreClient;
use test_support::cluster::Cluster;

use crate::network::{CONTENTIONS, Contention};
use crate::support::Result;
use crate::support::figure::Figure;
use crate::support::network::{Network, Way};

/// Measures N7a, or returns `None` if the server is older than 7.0.
pub async fn n7a() -> Result<Option<Figure>> {
    let entrance = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = entrance.local_addr()?.port().to_string();
    let options = ["--cluster-announce-ip", "127.0.0.1", "--cluster-announce-port", &port];
    let cluster = Cluster::form(1, false, &options);
    if cluster.nodes[0].is_older_than_7() {
        return Ok(None);
    }
    let way = Way::of(CONTENTIONS[0].one_way);
    let network = Network::listening(entrance, cluster.nodes[0].admin_url(), way)?;
    let address = network.address();
    let connect = async || SemaphoreClient::builder().connect_cluster([address.clone()]).await;
    let n1 = Contention { id: "N7a", what: "N1 in a cluster", ..CONTENTIONS[0] };
    Ok(Some(n1.figure_at(&network.client()?, connect).await?))
}
