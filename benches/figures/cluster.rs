//! N7a: N1 in a cluster. One node has all slots, and tells clients to come through the network.

use std::net::{Ipv4Addr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use redis_semaphore::Semaphores;

use crate::network::{CONTENTIONS, Contention};
use crate::support::Result;
use crate::support::figure::Figure;
use crate::support::network::{Network, Way};
use crate::support::own_server::OwnServer;

const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(10);

pub struct Cluster {
    network: Network,
    _node: OwnServer,
}

impl Cluster {
    pub fn start() -> Result<Self> {
        let entrance = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = entrance.local_addr()?.port().to_string();
        let options = ["--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1"];
        let announced = ["--cluster-announce-port", &port];
        let node = OwnServer::start(&[], &[options.as_slice(), &announced].concat())?;
        take_all_slots(&node)?;
        let way = Way::of(CONTENTIONS[0].one_way);
        Ok(Self { network: Network::listening(entrance, node.url(), way)?, _node: node })
    }

    pub async fn n7a(&self) -> Result<Figure> {
        let address = self.network.address();
        let connect = async || Semaphores::builder().connect_cluster([address.clone()]).await;
        Contention { id: "N7a", what: "N1 in a cluster", ..CONTENTIONS[0] }
            .figure_at(&self.network.client()?, connect)
            .await
    }
}

fn take_all_slots(node: &OwnServer) -> Result<()> {
    let mut connection = redis::Client::open(node.url())?.get_connection()?;
    let mut add = redis::cmd("CLUSTER");
    add.arg("ADDSLOTSRANGE").arg(0).arg(16_383).exec(&mut connection)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let info: String = redis::cmd("CLUSTER").arg("INFO").query(&mut connection)?;
        if info.contains("cluster_state:ok") {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err("the cluster never was well".into());
        }
        thread::sleep(PAUSE);
    }
}
