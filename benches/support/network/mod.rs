//! A network for benches: it stands between clients and the server, and whatever one of them sends
//! is with the other so much later. Chunks do not wait for each other: many are on their way at
//! once, and arrive in their order. Loopback, where benches run, has no such way.
//!
//! Its threads spend nearly all of the time asleep, so what is measured has the processor. They run
//! until the program ends.

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

/// What one way takes, from a client to the server or back.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    pub delay: Duration,
    /// By what part of it the delay is longer or shorter at random. Nothing is overtaken.
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
    /// To the server at this address.
    pub fn to(server: impl IntoConnectionInfo, way: Way) -> Result<Self> {
        Self::listening(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?, server, way)
    }

    /// With an entrance of one's own, for a server that has to know it before it starts.
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
                // A client that found no server behind it hears so by an end of its connection.
                let _ = client.and_then(|client| connect(client, &address, way, &counted));
            }
        });
        Ok(Self { server, port, waves })
    }

    /// A client whose connections all go this way.
    pub fn client(&self) -> Result<Client> {
        Ok(Client::open(self.address())?)
    }

    /// What the server's address is for clients.
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

    /// How many round trips one after the other it took to come to what clients have got by now.
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
        // What is late here is late because of the network, not of the sockets.
        end.set_nodelay(true)?;
    }
    carry(client.try_clone()?, server.try_clone()?, way, Direction::There(waves.clone()));
    carry(server, client, way, Direction::Back(waves.clone()));
    Ok(())
}
