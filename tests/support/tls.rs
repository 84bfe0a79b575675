//! A server that speaks TLS and wants certificates of its clients, and authorities that sign them.
//! Beside the rest of the support, which packages use that have no TLS.

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

/// Somebody who signs certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn create() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, format!("authority {}", Uuid::new_v4()));
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub fn root_cert(&self) -> Vec<u8> {
        self.0.pem().into_bytes()
    }

    /// For a host, an address or a client of that name.
    pub fn certificate(&self, name: &str) -> ClientTlsConfig {
        self.certificate_from_to(name, 1975, 4096)
    }

    /// Valid from the beginning of one year to that of another.
    pub fn certificate_from_to(&self, name: &str, from: i32, to: i32) -> ClientTlsConfig {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.not_before, params.not_after) =
            (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
        let client_cert = params.signed_by(&key, &self.0).unwrap().pem().into_bytes();
        ClientTlsConfig { client_cert, client_key: key.serialize_pem().into_bytes() }
    }

    /// Its own certificate, as `openssl req -x509` makes one.
    pub fn itself(&self) -> ClientTlsConfig {
        let client_key = self.0.key().serialize_pem().into_bytes();
        ClientTlsConfig { client_cert: self.root_cert(), client_key }
    }
}

pub struct TlsServer {
    /// It listens without TLS, too, for what tests do besides.
    pub server: Server,
    pub authority: Authority,
    pub port: u16,
}

impl TlsServer {
    /// With a certificate for this host. None where the server was built without TLS.
    pub fn start(host: &str, options: &[&str]) -> Option<Self> {
        Self::start_with(|authority| authority.certificate(host), options)
    }

    /// With a certificate that is made by hand.
    pub fn start_with(
        certificate: impl FnOnce(&Authority) -> ClientTlsConfig,
        options: &[&str],
    ) -> Option<Self> {
        if !*HAS_TLS {
            return None;
        }
        let authority = Authority::create();
        let certificate = certificate(&authority);
        let folder = Folder::create(); // It has read them when it is there.
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
        // Somebody else may take a port that was free.
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

/// Asked of the server itself. Those from Python wheels have none; of all others it is expected.
static HAS_TLS: LazyLock<bool> = LazyLock::new(|| {
    let ask = |arguments: &[&str]| {
        let Output { stdout, stderr, .. } =
            Command::new(binary()).args(arguments).output().unwrap();
        String::from_utf8([stdout, stderr].concat()).unwrap()
    };
    // It has no certificate, so it ends in any case.
    let answer = ask(&["--port", "0", "--tls-port", "1"]);
    let lacks_tls = match ask(&["--version"]) {
        version if version.contains("v=6.2.") => "Bad directive or wrong number of arguments",
        version if version.contains("Valkey") => "Failed finding TLS support",
        _ => "",
    };
    let has_tls = answer.contains("No tls-cert-file configured");
    assert!(has_tls || !lacks_tls.is_empty() && answer.contains(lacks_tls), "{answer}");
    has_tls
});
