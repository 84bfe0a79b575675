//! Tests of connections over TLS, with certificates made for the test. `CONTRIBUTING.md` describes
//! the server that the tests need. For servers that were built without TLS, see `TlsServer::start`.

use std::time::Duration;

use ConnectErrorKind::Tls;
use redis_semaphore::redis::{self, Client, ClientTlsConfig, TlsCertificates};
use redis_semaphore::{ConnectErrorKind, Error, SemaphoreClient};
use test_support::errors::{kind_of, whole};
use test_support::observer::{Observer, in_time};
use test_support::tls::{Authority, TlsServer};

/// A certificate of the X.509 version 1, and its key. `openssl x509 -req` of OpenSSL 3.0 makes such
/// certificates.
const VERSION_1: &[u8] = include_bytes!("version_1.pem");

/// Returns a client that trusts `root`. If `own` is set, the client sends a certificate from `own`.
fn client(url: &str, root: &Authority, own: Option<&Authority>) -> Client {
    let client_tls = own.map(|authority| authority.certificate("a client"));
    let certificates = TlsCertificates { client_tls, root_cert: Some(root.root_cert()) };
    Client::build_with_tls(url, certificates).unwrap()
}

async fn connect(client: Client) -> Result<SemaphoreClient, Error> {
    // On a busy machine a handshake takes time.
    let builder = SemaphoreClient::builder().response_timeout(Duration::from_secs(15));
    in_time("a reply", builder.connect_client(client)).await
}

/// Returns the kind of the error, and the text with the TLS library's reason.
async fn refusal(client: Client) -> (ConnectErrorKind, String) {
    match connect(client).await {
        Err(error) => {
            assert!(error.to_string().contains("Redis at 127.0.0.1:"), "{error}");
            (kind_of(&error).expect("an error of connecting"), whole(&error))
        }
        Ok(_) => panic!("it has connected"),
    }
}

#[tokio::test]
async fn a_handoff_works_with_tls_certificates_on_both_sides() {
    let Some(server) = TlsServer::start("127.0.0.1", &[]) else { return };
    let client = client(&server.url(), &server.authority, Some(&server.authority));
    let client = connect(client).await.unwrap();
    let semaphore = client.semaphore("over-tls").limit(1).build().unwrap();
    let observer = Observer::new(&server.server.url(), "over-tls", 1).await;
    let mut permit = semaphore.acquire().await.unwrap();
    for _ in 0..2 {
        let waiting = tokio::spawn({
            let semaphore = semaphore.clone();
            async move { semaphore.acquire().await }
        });
        observer.sees(1, 1).await;
        permit.release().await.unwrap();
        permit = in_time("its turn", waiting).await.unwrap().unwrap();
        // The second round uses new connections.
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("USER").arg("jobs").exec(&mut server.server.connect()).unwrap();
    }
    permit.release().await.unwrap();
    client.shutdown().await;
}

#[tokio::test]
async fn an_unknown_certificate_authority_is_reported_with_advice() {
    let Some(server) = TlsServer::start("127.0.0.1", &["--tls-auth-clients", "no"]) else { return };
    let refused = in_time("a reply", SemaphoreClient::connect(&server.url())).await.unwrap_err();
    assert_eq!(kind_of(&refused), Some(Tls), "{refused}");
    let advice = "pass the authority to the client, or name it in SSL_CERT_FILE if none is passed";
    assert!(refused.to_string().contains(advice), "{refused}");
    assert!(whole(&refused).contains("UnknownIssuer"), "{}", whole(&refused));
}

#[tokio::test]
async fn connecting_reports_untrusted_and_missing_certificates() {
    let Some(server) = TlsServer::start("127.0.0.1", &[]) else { return };
    let (url, ours, others) = (server.url(), &server.authority, &Authority::create());
    let (kind, reason) = refusal(client(&url, others, Some(ours))).await;
    assert!(kind == Tls && reason.contains("UnknownIssuer"), "{kind:?}: {reason}");
    let (kind, reason) = refusal(client(&url, ours, None)).await;
    assert!(kind == Tls && reason.contains("requires a client certificate"), "{reason}");
    let (kind, reason) = refusal(client(&url, ours, Some(others))).await;
    assert!(kind == Tls && reason.contains("does not trust this client's"), "{reason}");
}

#[tokio::test]
async fn a_certificate_for_another_host_is_rejected() {
    let Some(server) = TlsServer::start("redis.example", &[]) else { return };
    let (kind, reason) =
        refusal(client(&server.url(), &server.authority, Some(&server.authority))).await;
    assert!(kind == Tls && reason.contains("is for another host"), "{kind:?}: {reason}");
}

/// The replies to the first commands may be lost, because the server closes the connection after a
/// long command.
#[tokio::test]
async fn connecting_over_tls_reports_a_required_password() {
    let Some(server) = TlsServer::start("127.0.0.1", &[]) else { return };
    let set = ["SET", "requirepass", "geheim"];
    redis::cmd("CONFIG").arg(&set).exec(&mut server.server.connect()).unwrap();
    let url = format!("rediss://127.0.0.1:{}/", server.port);
    let client = client(&url, &server.authority, Some(&server.authority));
    for _ in 0..50 {
        let (kind, reason) = refusal(client.clone()).await;
        assert!(kind == ConnectErrorKind::Authentication, "{kind:?}: {reason}");
        assert!(
            reason.contains(
                "the server requires a password for the default user, but none was sent (NOAUTH)"
            ),
            "{reason}"
        );
    }
}

#[tokio::test]
async fn connecting_reports_tls_on_only_one_side() {
    let Some(server) = TlsServer::start("127.0.0.1", &[]) else { return };
    let plain = format!("redis://127.0.0.1:{}/", server.port);
    let (kind, reason) = refusal(Client::open(plain).unwrap()).await;
    assert!(matches!(kind, ConnectErrorKind::Closed | Tls), "{kind:?}: {reason}");
    assert!(reason.contains("rediss:// instead of redis://"), "{reason}");

    let tls = format!("rediss://127.0.0.1:{}/", server.server.port);
    let builder = SemaphoreClient::builder().response_timeout(Duration::from_millis(500));
    let refused = in_time("a reply", builder.connect(&tls)).await.unwrap_err();
    assert!(matches!(refused, Error::Connect { .. }), "{refused}");
    assert!(refused.to_string().contains("try redis:// instead of rediss://"), "{refused}");
}

/// Returns the errors of every way to connect.
async fn refusals(url: &str, certificates: &TlsCertificates) -> Vec<String> {
    let builder = || {
        // On a busy machine a handshake takes time.
        let builder = SemaphoreClient::builder().response_timeout(Duration::from_secs(15));
        builder.certificates(certificates.clone())
    };
    let by_redis = Client::build_with_tls(url, certificates.clone()).unwrap();
    let refused = [
        in_time("a reply", builder().connect(url)).await,
        in_time("a reply", builder().connect_primary_of([url])).await,
        in_time("a reply", builder().connect_cluster([url])).await,
        in_time("a reply", builder().connect_sentinels([url], "primary", url)).await,
        connect(by_redis).await,
    ];
    let reported = refused.into_iter().map(|refused| {
        let refused = refused.expect_err("it has connected");
        assert_eq!(kind_of(&refused), Some(Tls), "{refused}");
        refused.to_string()
    });
    reported.collect()
}

#[tokio::test]
async fn every_way_to_connect_reports_which_sides_certificate_is_invalid() {
    type Certificate = fn(&Authority) -> redis::ClientTlsConfig;
    let good: Certificate = |authority| authority.certificate("127.0.0.1");
    let expired: Certificate = |authority| authority.certificate_from_to("127.0.0.1", 2001, 2002);
    let early: Certificate = |authority| authority.certificate_from_to("127.0.0.1", 2090, 2091);
    let other_host: Certificate = |authority| authority.certificate("redis.example");
    let nameless: Certificate = Authority::certificate_without_names;
    let stranger: Certificate = |_| Authority::create().certificate("127.0.0.1");
    let namesake: Certificate = |authority| authority.namesake().certificate("127.0.0.1");
    let itself: Certificate = Authority::itself;
    for (servers, clients, words) in [
        (expired, good, "the server's certificate has expired: replace it on the server"),
        (early, good, "the server's certificate is not valid yet"),
        (other_host, good, "the server's certificate is for another host"),
        (nameless, good, "the server's certificate names no host"),
        (
            stranger,
            good,
            "the server's certificate is not signed by an authority that this client trusts",
        ),
        (
            namesake,
            good,
            "a signature of the server's certificate is wrong: if its authority has a new key",
        ),
        (itself, good, "the server's certificate is that of an authority"),
        (good, expired, "the server reports that this client's certificate has expired"),
        (
            good,
            early,
            "the server rejects this client's certificate as malformed: check its period of \
             validity",
        ),
        (good, stranger, "the server does not trust this client's certificate"),
    ] {
        let Some(server) = TlsServer::start_with(servers, &[]) else { return };
        let certificates = TlsCertificates {
            client_tls: Some(clients(&server.authority)),
            root_cert: Some(server.authority.root_cert()),
        };
        for reported in refusals(&server.url(), &certificates).await {
            assert!(reported.contains(words), "{words:?} is not in {reported:?}");
        }
    }
}

#[tokio::test]
async fn certificates_of_the_builder_are_used_or_rejected() {
    let Some(server) = TlsServer::start("127.0.0.1", &[]) else { return };
    let (root, own) = (server.authority.root_cert(), server.authority.certificate("a client"));
    let good = TlsCertificates { client_tls: Some(own), root_cert: Some(root) };
    let builder = |certificates: &TlsCertificates| {
        let builder = SemaphoreClient::builder().response_timeout(Duration::from_secs(15));
        builder.certificates(certificates.clone())
    };
    let client = builder(&good).connect(&server.url()).await.unwrap();
    let semaphore = client.semaphore("by-builder").limit(1).build().unwrap();
    in_time("a permit", semaphore.acquire()).await.unwrap().release().await.unwrap();

    let plain = builder(&good).connect(&server.server.url()).await.unwrap_err();
    assert!(plain.to_string().starts_with("certificates: certificates require TLS"), "{plain}");
    let none = TlsCertificates { client_tls: None, root_cert: Some(b"none".to_vec()) };
    let none = builder(&none).connect(&server.url()).await.unwrap_err();
    assert!(none.to_string().contains("is not a PEM certificate (BEGIN CERTIFICATE)"), "{none}");
}

/// Each error states why a certificate and its key cannot be used together.
#[tokio::test]
async fn unusable_certificates_of_a_client_are_rejected_with_the_reason() {
    let authority = Authority::create();
    let [own, other] = ["a client", "another"].map(|name| authority.certificate(name));
    let encrypted =
        b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----";
    for (client_cert, client_key, words) in [
        (&*own.client_cert, &*other.client_key, "does not match its key"),
        (&*own.client_cert, &encrypted[..], "the client key is encrypted: decrypt it first"),
        (&*own.client_cert, &b"none"[..], "is not a PEM key (BEGIN PRIVATE KEY)"),
        (VERSION_1, VERSION_1, "does not have the X.509 version 3"),
    ] {
        let own =
            ClientTlsConfig { client_cert: client_cert.into(), client_key: client_key.into() };
        let certificates = TlsCertificates { client_tls: Some(own), root_cert: None };
        let builder = SemaphoreClient::builder().certificates(certificates);
        let refused = builder.connect("rediss://127.0.0.1:1/").await.unwrap_err().to_string();
        assert!(refused.starts_with("certificates: ") && refused.contains(words), "{refused}");
    }
}
