//! A TLS server that requires client certificates, and authorities that sign certificates. This
//! module is separate, because packages without TLS use the other support code.

use std::process::{Command, Output};
use std::sync::LazyLock;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use redis_semaphore::redis::ClientTlsConfig;
use uuid::Uuid;

use super::acl;
use super::folder::Folder;
use super::server::{Server, binary, free_port};

pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    name: String,
}

impl Authority {
    pub fn create() -> Self {
        Self::named(format!("authority {}", Uuid::new_v4()))
    }

    /// Returns an authority with the same name and another key.
    pub fn namesake(&self) -> Self {
        Self::named(self.name.clone())
    }

    fn named(name: String) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, &name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { issuer, name }
    }

    pub fn root_cert(&self) -> Vec<u8> {
        self.issuer.pem().into_bytes()
    }

    /// Returns a certificate for this host, address or client name.
    pub fn certificate(&self, name: &str) -> ClientTlsConfig {
        self.certificate_from_to(name, 1975, 4096)
    }

    /// Returns a certificate that is valid from the beginning of one year to the beginning of
    /// another year.
    pub fn certificate_from_to(&self, name: &str, from: i32, to: i32) -> ClientTlsConfig {
        self.certificate_of([name.to_owned()], from, to)
    }

    /// Returns a certificate that contains no name of a host.
    pub fn certificate_without_names(&self) -> ClientTlsConfig {
        self.certificate_of([], 1975, 4096)
    }

    fn certificate_of<const N: usize>(
        &self,
        names: [String; N],
        from: i32,
        to: i32,
    ) -> ClientTlsConfig {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(names).unwrap();
        (params.not_before, params.not_after) =
            (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
        let client_cert = params.signed_by(&key, &self.issuer).unwrap().pem().into_bytes();
        ClientTlsConfig { client_cert, client_key: key.serialize_pem().into_bytes() }
    }

    /// Returns the authority's own certificate, like a certificate made with `openssl req -x509`.
    pub fn itself(&self) -> ClientTlsConfig {
        let client_key = self.issuer.key().serialize_pem().into_bytes();
        ClientTlsConfig { client_cert: self.root_cert(), client_key }
    }
}

pub struct TlsServer {
    /// The server, which also listens without TLS for other commands of tests.
    pub server: Server,
    pub authority: Authority,
    pub port: u16,
}

impl TlsServer {
    /// Starts a server with a certificate for this host. Returns `None` if the server was built
    /// without TLS.
    pub fn start(host: &str, options: &[&str]) -> Option<Self> {
        Self::start_with(|authority| authority.certificate(host), options)
    }

    pub fn start_with(
        certificate: impl FnOnce(&Authority) -> ClientTlsConfig,
        options: &[&str],
    ) -> Option<Self> {
        if !*HAS_TLS {
            return None;
        }
        let authority = Authority::create();
        let certificate = certificate(&authority);
        // The folder may be removed later, because a server reads these files only when it starts.
        let folder = Folder::create();
        let mut all: Vec<String> = options.iter().map(|option| option.to_string()).collect();
        for (name, content) in [
            ("ca-cert-file", authority.root_cert()),
            ("cert-file", certificate.client_cert),
            ("key-file", certificate.client_key),
        ] {
            let path = folder.join(name);
            std::fs::write(&path, content).unwrap();
            all.extend([format!("--tls-{name}"), path.to_str().unwrap().to_owned()]);
        }
        let mut log = String::new();
        // Another process may take a free port first.
        let started = (0..20).find_map(|_| {
            let port = free_port();
            let port_option = ["--tls-port".to_owned(), port.to_string()];
            let options: Vec<&str> = all.iter().chain(&port_option).map(String::as_str).collect();
            let server = Server::try_start_with(&options);
            Some((server.map_err(|error| log = error).ok()?, port))
        });
        let (server, port) = started.unwrap_or_else(|| panic!("no TLS server started: {log}"));
        Some(Self { server, authority, port })
    }

    pub fn url(&self) -> String {
        let Self { port, .. } = self;
        format!("rediss://{}:{}@127.0.0.1:{port}/", acl::USER, acl::PASSWORD)
    }
}

/// Whether the server has TLS, as the server itself reports. Redis 6.2 and Valkey may lack TLS,
/// because their Python wheels have no TLS. All other servers must have TLS.
static HAS_TLS: LazyLock<bool> = LazyLock::new(|| {
    let ask = |arguments: &[&str]| {
        let Output { stdout, stderr, .. } =
            Command::new(binary()).args(arguments).output().unwrap();
        String::from_utf8([stdout, stderr].concat()).unwrap()
    };
    // The server has no certificate, so it ends in any case.
    let response = ask(&["--port", "0", "--tls-port", "1"]);
    let lacks_tls = match ask(&["--version"]) {
        version if version.contains("v=6.2.") => "Bad directive or wrong number of arguments",
        version if version.contains("Valkey") => "Failed finding TLS support",
        _ => "",
    };
    let has_tls = response.contains("No tls-cert-file configured");
    assert!(has_tls || !lacks_tls.is_empty() && response.contains(lacks_tls), "{response}");
    has_tls
});
