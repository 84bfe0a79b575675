//! TLS connections without redis-rs.
//!
//! redis-rs makes rustls choose the cryptography provider of the whole process. Only the program
//! should make that choice. A `redis::Client` with its own certificates is still connected by
//! redis-rs, because no other crate can read these certificates.

use std::sync::{Arc, OnceLock};

use redis::{
    ClientTlsConfig, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, TlsCertificates,
};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{CertificateError, ClientConfig, OtherError, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::Error;

/// The TLS settings of all connections of a client.
pub(crate) struct Tls {
    certificates: Option<TlsCertificates>,
    /// Created at the first use.
    config: OnceLock<Result<Arc<ClientConfig>, String>>,
}

impl Tls {
    pub(crate) fn new(certificates: Option<TlsCertificates>) -> Self {
        Self { certificates, config: OnceLock::new() }
    }

    /// Rejects settings that cannot work or would be ignored.
    pub(crate) fn check<'a>(
        &self,
        servers: impl IntoIterator<Item = &'a ConnectionInfo>,
    ) -> Result<(), Error> {
        let wrong = |reason: String| Error::invalid("certificates", reason);
        for server in servers {
            match (server.addr(), &self.certificates) {
                (ConnectionAddr::TcpTls { insecure: false, tls_params: None, .. }, _) => {
                    self.config().map_err(wrong)?;
                }
                // redis-rs makes the connections of a `redis::Client` with its own TLS settings.
                (ConnectionAddr::TcpTls { .. }, None) => check_choice()?,
                (ConnectionAddr::TcpTls { .. }, Some(_)) => {
                    let reason = "the client already has certificates: remove one of the two";
                    return Err(wrong(reason.to_owned()));
                }
                (_, Some(_)) => {
                    let reason = "certificates require TLS, but a URL does not use it: use \
                                  rediss://, or remove the certificates";
                    return Err(wrong(reason.to_owned()));
                }
                (_, None) => {}
            }
        }
        Ok(())
    }

    fn config(&self) -> Result<Arc<ClientConfig>, String> {
        self.config.get_or_init(|| configure(self.certificates.as_ref()).map(Arc::new)).clone()
    }

    pub(super) async fn encrypt(
        &self,
        host: &str,
        tcp: TcpStream,
    ) -> Result<TlsStream<TcpStream>, RedisError> {
        let config = self.config().map_err(|reason| {
            let what = "the certificates cannot be used";
            RedisError::from((ErrorKind::InvalidClientConfig, what, reason))
        })?;
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            let what = "the host cannot be the subject of a certificate";
            RedisError::from((ErrorKind::InvalidClientConfig, what))
        })?;
        Ok(TlsConnector::from(config).connect(name, tcp).await?)
    }
}

/// Fails if the program has several crates for cryptography and no default. Without this check,
/// rustls would panic when redis-rs connects.
fn check_choice() -> Result<(), Error> {
    if CryptoProvider::get_default().is_some() {
        return Ok(());
    }
    std::panic::catch_unwind(|| drop(ClientConfig::builder())).map_err(|_| {
        let reason = "the program has several cryptography crates, and a redis::Client with \
                      certificates needs a default: call install_default() of one of them first, \
                      or pass the certificates to SemaphoreClientBuilder::certificates";
        Error::invalid("certificates", reason)
    })
}

fn configure(certificates: Option<&TlsCertificates>) -> Result<ClientConfig, String> {
    let of_program = CryptoProvider::get_default().cloned();
    let provider = of_program.unwrap_or_else(|| Arc::new(ring::default_provider()));
    let roots = match certificates.and_then(|given| given.root_cert.as_deref()) {
        Some(pem) => read_roots(pem)?,
        None => trusted_by_system()?,
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let Some(own) = certificates.and_then(|given| given.client_tls.as_ref()) else {
        return Ok(builder.with_no_client_auth());
    };
    let ClientTlsConfig { client_cert, client_key } = own;
    let chain = read_certificates("the certificate of the client", client_cert)?;
    let key = PrivateKeyDer::from_pem_slice(client_key).map_err(|_| wrong_key(client_key))?;
    builder.with_client_auth_cert(chain, key).map_err(|error| match &error {
        rustls::Error::InconsistentKeys(_) => {
            format!("the client certificate does not match its key: {error}")
        }
        rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(other)))
            if other.downcast_ref() == Some(&webpki::Error::UnsupportedCertVersion) =>
        {
            "the client certificate does not have the X.509 version 3: sign it with extensions \
             (openssl x509 -req -extfile)"
                .to_owned()
        }
        _ => format!("the client certificate or its key cannot be used: {error}"),
    })
}

fn wrong_key(pem: &[u8]) -> String {
    match String::from_utf8_lossy(pem).contains("ENCRYPTED") {
        true => "the client key is encrypted: decrypt it first (openssl pkey -in KEY -out NEW)",
        false => "the client key is not a PEM key (BEGIN PRIVATE KEY)",
    }
    .to_owned()
}

fn read_certificates(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = || format!("{what} is not a PEM certificate (BEGIN CERTIFICATE)");
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    found.ok().filter(|found| !found.is_empty()).ok_or_else(wrong)
}

fn read_roots(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates("the certificate of the authority", pem)? {
        let wrong = |error| format!("the certificate of the authority cannot be used: {error}");
        roots.add(certificate).map_err(wrong)?;
    }
    Ok(roots)
}

fn trusted_by_system() -> Result<RootCertStore, String> {
    let mut found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    match found.errors.pop() {
        Some(error) if roots.is_empty() => {
            Err(format!("the authorities that the system trusts cannot be read: {error}"))
        }
        _ => Ok(roots),
    }
}
