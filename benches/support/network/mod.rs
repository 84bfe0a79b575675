//! A network for benches. It is a proxy between clients and the server that delays all data. Many
//! chunks may be under way at the same time, and they arrive in order. The loopback interface,
//! which benches use, has no delay.
//!
//! Its threads sleep nearly all the time, so that they take no processor time from the measured
//! code. They run until the program ends.

mod alarm;
mod line;
mod waves;

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use super::Result;
use line::{Direction, carry};
use waves::Waves;

/// The delay in one direction.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    pub delay: Duration,
    /// The maximum random deviation, as a part of the delay. The order of chunks is kept.
    pub jitter: f64,
}

impl Way {
    pub fn of(delay: Duration) -> Self {
        Self { delay, jitter: 0.0 }
    }
}

pub struct Network {
    server: ConnectionInfo,
    port: u16,
    waves: Arc<Waves>,
}

impl Network {
    /// Creates a network to the server at this address.
    pub fn to(server: impl IntoConnectionInfo, way: Way) -> Result<Self> {
        Self::listening(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?, server, way)
    }

    /// Creates a network with this listener, for a server that must know the port before it starts.
    pub fn listening(
        entrance: TcpListener,
        server: impl IntoConnectionInfo,
        way: Way,
    ) -> Result<Self> {
        let server = server.into_connection_info()?;
        let (ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }) =
            server.addr()
        else {
            return Err("a network is measured with a server that has a TCP port".into());
        };
        let address = (host.clone(), *port);
        let port = entrance.local_addr()?.port();
        let waves = Arc::new(Waves::default());
        let counted = waves.clone();
        thread::spawn(move || {
            for client in entrance.incoming() {
                // If the server is not running, the client's connection is closed.
                let _ = client.and_then(|client| connect(client, &address, way, &counted));
            }
        });
        Ok(Self { server, port, waves })
    }

    pub fn client(&self) -> Result<Client> {
        Ok(Client::open(self.address())?)
    }

    /// Returns the server's address for clients of this network.
    pub fn address(&self) -> ConnectionInfo {
        let localhost = Ipv4Addr::LOCALHOST.to_string();
        let address = match self.server.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host: localhost, port: self.port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(localhost, self.port),
        };
        self.server.clone().set_addr(address)
    }

    /// Returns the number of sequential round trips that led to the data received by clients so
    /// far.
    pub fn round_trips(&self) -> u32 {
        self.waves.come_back()
    }
}

fn connect(
    client: TcpStream,
    address: &(String, u16),
    way: Way,
    waves: &Arc<Waves>,
) -> io::Result<()> {
    let server = TcpStream::connect(address)?;
    for end in [&client, &server] {
        // All delays must come from the network, not from the sockets.
        end.set_nodelay(true)?;
    }
    carry(client.try_clone()?, server.try_clone()?, way, Direction::There(waves.clone()));
    carry(server, client, way, Direction::Back(waves.clone()));
    Ok(())
}
