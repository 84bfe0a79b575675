//! The CLI over TLS, with certificates made for the test.

use std::fs;
use std::process::{Command, Output};

use redis_semaphore::SemaphoreClient;
use test_support::folder::Folder;
use test_support::tls::{Authority, TlsServer};

use crate::support::tool::{Outcome, TOOL, tool};

/// Runs `ls` with these options, each of which names a file with the given content.
fn list(server: &TlsServer, options: &[(&str, &[u8])]) -> Output {
    let mut tool = Command::new(TOOL);
    tool.args(["ls", "--url", &format!("rediss://127.0.0.1:{}/", server.port)]);
    for (option, content) in options {
        let file = server.server.folder().join(&option[2..]);
        fs::write(&file, content).unwrap();
        tool.arg(option).arg(file);
    }
    tool.env_remove("REDIS_URL").output().unwrap()
}

#[tokio::test]
async fn tls_authority_and_client_certificate_are_read_from_files() {
    let Some(server) = TlsServer::start("127.0.0.1", &[]) else { return };
    let (root, own) = (server.authority.root_cert(), server.authority.certificate("a client"));
    let stranger = Authority::create().certificate("a client");
    let client = SemaphoreClient::connect(&server.server.url()).await.unwrap();
    let _held = client.semaphore("jobs").limit(3).build().unwrap().acquire().await.unwrap();

    let ca = ("--tls-ca", &*root);
    let pair = [("--tls-cert", &*own.client_cert), ("--tls-key", &*own.client_key)];
    let others = [("--tls-cert", &*stranger.client_cert), ("--tls-key", &*stranger.client_key)];
    let listed = list(&server, &[ca, pair[0], pair[1]]);
    let text = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.status.success() && text.contains("\njobs  1/3"), "{text}");
    for (options, words) in [
        (
            &pair[..],
            "authority that this client trusts: pass the authority with --tls-ca, or name it in \
             SSL_CERT",
        ),
        (&[ca], "requires a client certificate: pass one with --tls-cert and --tls-key"),
        (
            &[ca, others[0], others[1]],
            "does not trust this client's certificate: use a certificate signed by",
        ),
    ] {
        let refused = list(&server, options);
        let text = String::from_utf8(refused.stderr).unwrap();
        assert!(refused.status.code() == Some(69) && text.contains(words), "{text}");
    }
}

#[test]
fn no_tls_option_is_needed_if_the_system_trusts_the_authority() {
    let options = ["--tls-auth-clients", "no", "--appendonly", "yes"];
    let Some(server) = TlsServer::start("127.0.0.1", &options) else { return };
    let root = server.server.folder().join("trusted.pem");
    fs::write(&root, server.authority.root_cert()).unwrap();
    let mut doctor = tool(&["doctor"]);
    doctor
        .env("REDIS_URL", format!("rediss://127.0.0.1:{}/", server.port))
        .env("SSL_CERT_FILE", root);
    let outcome = Outcome::of(doctor);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
}

/// The CLI ignores neither an invalid file of certificates, nor a TLS option for a server without
/// TLS.
#[test]
fn unusable_certificates_are_rejected() {
    let folder = Folder::create();
    let file = folder.0.join("ca.pem");
    fs::write(&file, "-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----\n").unwrap();
    let two = "redis://127.0.0.1:1/,redis://127.0.0.1:2/";
    for urls in ["redis://127.0.0.1:1/", two, "rediss://127.0.0.1:1/"] {
        let outcome = Outcome::of(tool(&["--url", urls, "--tls-ca", file.to_str().unwrap(), "ls"]));
        outcome.fails(2, "--tls-ca, --tls-cert, --tls-key: ");
    }
}

#[test]
fn an_insecure_tls_url_is_rejected_with_an_alternative() {
    let outcome = Outcome::of(tool(&["--url", "rediss://127.0.0.1:1/#insecure", "ls"]));
    outcome.fails(
        2,
        "#insecure, which accepts any certificate, is not supported: pass the signing \
                   authority",
    );
    outcome.fails(2, "with --tls-ca");
}
