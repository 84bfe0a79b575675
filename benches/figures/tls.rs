//! N7: N1 over TLS, with a certificate made for it.

use rcgen::{CertificateParams, KeyPair};
use redis::{Client, TlsCertificates};
use redis_semaphore::Semaphores;

use crate::network::{CONTENTIONS, Contention};
use crate::support::Result;
use crate::support::figure::Figure;
use crate::support::network::{Network, Way};
use crate::support::own_server::{OwnServer, free_port};

pub struct TlsServer {
    client: Client,
    _server: OwnServer,
}

impl TlsServer {
    pub fn start() -> Result<Self> {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(["127.0.0.1".to_owned()])?.self_signed(&key)?;
        let root_cert = Some(certificate.pem().into_bytes());
        let files = [("certificate", certificate.pem()), ("key", key.serialize_pem())];
        let port = free_port()?;
        let options = ["--tls-cert-file", "certificate", "--tls-key-file", "key"];
        let no_client_certificates = ["--tls-auth-clients", "no", "--tls-port", &port.to_string()];
        let options = [options, no_client_certificates].concat();
        let server = OwnServer::start(&files, &options)?;
        let way = Way::of(CONTENTIONS[0].one_way);
        let network = Network::to(format!("rediss://127.0.0.1:{port}/"), way)?;
        let certificates = TlsCertificates { client_tls: None, root_cert };
        let client = Client::build_with_tls(network.address(), certificates)?;
        Ok(Self { client, _server: server })
    }

    pub async fn n7(&self) -> Result<Figure> {
        let connect = async || Semaphores::builder().connect_client(self.client.clone()).await;
        Contention { id: "N7", what: "N1 over TLS", ..CONTENTIONS[0] }
            .figure_at(&self.client, connect)
            .await
    }
}
