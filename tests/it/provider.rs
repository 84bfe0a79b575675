//! This test needs its own process: after the client has connected, the program chooses the
//! process-wide cryptography crate.

use std::time::Duration;

use redis_semaphore::SemaphoreClient;
use redis_semaphore::redis::TlsCertificates;
use rustls::crypto::{CryptoProvider, ring};
use test_support::observer::in_time;
use test_support::server::Server;
use test_support::tls::TlsServer;

#[tokio::test]
async fn connecting_installs_no_process_wide_crypto_provider() {
    let plain = Server::start();
    let client = SemaphoreClient::connect(&plain.url()).await.unwrap();
    assert!(CryptoProvider::get_default().is_none(), "after a connection without TLS");
    client.shutdown().await;
    if let Some(server) = TlsServer::start("127.0.0.1", &["--tls-auth-clients", "no"]) {
        let root_cert = Some(server.authority.root_cert());
        let builder = SemaphoreClient::builder().response_timeout(Duration::from_secs(15));
        let builder = builder.certificates(TlsCertificates { client_tls: None, root_cert });
        let client = in_time("a connection", builder.connect(&server.url())).await.unwrap();
        let semaphore = client.semaphore("over-tls").limit(1).build().unwrap();
        in_time("a permit", semaphore.acquire()).await.unwrap().release().await.unwrap();
        assert!(CryptoProvider::get_default().is_none(), "after a connection over TLS");
    }
    ring::default_provider().install_default().expect("no provider was installed before");
}
