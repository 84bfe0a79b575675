//! N7: the figure N1 over TLS, with a new certificate.

use redis::{Client, TlsCertificates};
use redis_semaphore::SemaphoreClient;
use test_support::tls::TlsServer;

use crate::network::{CONTENTIONS, Contention};
use crate::support::Result;
use crate::support::figure::Figure;
use crate::support::network::{Network, Way};

/// Measures N7, or returns `None` if the server was built without TLS.
pub async fn n7() -> Result<Option<Figure>> {
    let Some(server) = TlsServer::start("127.0.0.1", &["--tls-auth-clients", "no"]) else {
        return Ok(None);
    };
    let url = format!("rediss://127.0.0.1:{}/", server.port);
    let network = Network::to(url, Way::of(CONTENTIONS[0].one_way))?;
    let root_cert = Some(server.authority.root_cert());
    let certificates = TlsCertificates { client_tls: None, root_cert };
    let client = Client::build_with_tls(network.address(), certificates)?;
    let connect = async || SemaphoreClient::builder().connect_client(client.clone()).await;
    let n1 = Contention { id: "N7", what: "N1 over TLS", ..CONTENTIONS[0] };
    Ok(Some(n1.figure_at(&client, connect).await?))
}
