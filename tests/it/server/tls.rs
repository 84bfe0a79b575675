//! Over TLS, with certificates made for the test: see `CONTRIBUTING.md`. Servers that were built
//! without TLS say so, see `TlsServer::start`.

use std::process::{Command, Output};
use std::time::Duration;

use ConnectErrorKind::Tls;
use redis_semaphore::redis::{self, Client, TlsCertificates};
use redis_semaphore::{ConnectErrorKind, Error, Semaphores};
use test_support::errors::{kind_of, whole};
use test_support::example;
use test_support::observer::{Observer, in_time};
use test_support::tls::{Authority, TlsServer};

/// The client that trusts `root`, and shows a certificate of `own` if there is one.
fn client(url: &str, root: &Authority, own: Option<&Authority>) -> Client {
    let client_tls = own.map(|authority| authority.certificate("a client"));
    let certificates = TlsCertificates { client_tls, root_cert: Some(root.root_cert()) };
    Client::build_with_tls(url, certificates).unwrap()
}

async fn connect(client: Client) -> Result<Semaphores, Error> {
    // A machine with much to do takes its time for a greeting.
    let builder = Semaphores::builder().response_timeout(Duration::from_secs(15));
    in_time("an answer", builder.connect_client(client)).await
}

/// Why it cannot connect, with what TLS says.
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
async fn a_wait_and_a_hand_off_with_certificates_on_both_sides() {
    let Some(server) = TlsServer::start("127.0.0.1", &[]) else { return };
    let client = client(&server.url(), &server.authority, Some(&server.authority));
    let semaphores = connect(client).await.unwrap();
    let semaphore = semaphores.semaphore("over-tls").limit(1).build().unwrap();
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
        // The second time on new connections.
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("USER").arg("jobs").exec(&mut server.server.connect()).unwrap();
    }
    permit.release().await.unwrap();
    semaphores.shutdown().await;
}

#[tokio::test]
async fn a_url_is_enough_where_the_system_trusts_the_authority() {
    let options = ["--tls-auth-clients", "no", "--appendonly", "yes"];
    let Some(server) = TlsServer::start("127.0.0.1", &options) else { return };
    let refused = in_time("an answer", Semaphores::connect(&server.url())).await.unwrap_err();
    assert_eq!(kind_of(&refused), Some(Tls), "{refused}");
    let advice = "name the authority to the client, or in SSL_CERT_FILE";
    assert!(refused.to_string().contains(advice), "{refused}");
    assert!(whole(&refused).contains("UnknownIssuer"), "{}", whole(&refused));

    // What a process trusts it reads from this file; another process, as it is set for all of it.
    let root = server.server.folder().join("trusted.pem");
    std::fs::write(&root, server.authority.root_cert()).unwrap();
    let url = format!("rediss://127.0.0.1:{}/", server.port);
    let doctor = Command::new(example::tool())
        .arg("doctor")
        .env("REDIS_URL", url)
        .env("SSL_CERT_FILE", root)
        .output()
        .unwrap();
    assert_eq!(doctor.status.code(), Some(0), "{doctor:?}");
}

#[tokio::test]
async fn what_is_wrong_with_a_certificate_is_said() {
    let Some(server) = TlsServer::start("127.0.0.1", &[]) else { return };
    let (url, ours, others) = (server.url(), &server.authority, &Authority::create());
    let (kind, reason) = refusal(client(&url, others, Some(ours))).await;
    assert!(kind == Tls && reason.contains("UnknownIssuer"), "{kind:?}: {reason}");
    let (kind, reason) = refusal(client(&url, ours, None)).await;
    assert!(kind == Tls && reason.contains("wants a certificate of its clients"), "{reason}");
    let (kind, reason) = refusal(client(&url, ours, Some(others))).await;
    assert!(kind == Tls && reason.contains("does not trust the certificate of this"), "{reason}");
}

#[tokio::test]
async fn a_certificate_for_another_host_is_refused() {
    let Some(server) = TlsServer::start("redis.example", &[]) else { return };
    let (kind, reason) =
        refusal(client(&server.url(), &server.authority, Some(&server.authority))).await;
    assert!(kind == Tls && reason.contains("is for another host"), "{kind:?}: {reason}");
}

/// Whatever becomes of the first words when it closes the connection on the long ones.
#[tokio::test]
async fn a_server_that_wants_a_password_says_so() {
    let Some(server) = TlsServer::start("127.0.0.1", &[]) else { return };
    let set = ["SET", "requirepass", "geheim"];
    redis::cmd("CONFIG").arg(&set).exec(&mut server.server.connect()).unwrap();
    let url = format!("rediss://127.0.0.1:{}/", server.port);
    let client = client(&url, &server.authority, Some(&server.authority));
    for _ in 0..50 {
        let (kind, reason) = refusal(client.clone()).await;
        assert!(kind == ConnectErrorKind::Authentication, "{kind:?}: {reason}");
        assert!(reason.contains("the server wants a password, and got none (NOAUTH)"), "{reason}");
    }
}

#[tokio::test]
async fn one_side_that_speaks_tls_and_one_that_does_not() {
    let Some(server) = TlsServer::start("127.0.0.1", &[]) else { return };
    let plain = format!("redis://127.0.0.1:{}/", server.port);
    let (kind, reason) = refusal(Client::open(plain).unwrap()).await;
    assert!(matches!(kind, ConnectErrorKind::Closed | Tls), "{kind:?}: {reason}");
    assert!(reason.contains("try rediss:// instead of redis://"), "{reason}");

    let tls = format!("rediss://127.0.0.1:{}/", server.server.port);
    let builder = Semaphores::builder().response_timeout(Duration::from_millis(500));
    let refused = in_time("an answer", builder.connect(&tls)).await.unwrap_err();
    assert!(matches!(refused, Error::Connect { .. }), "{refused}");
    assert!(refused.to_string().contains("try redis:// instead of rediss://"), "{refused}");
}

/// `ls` of the tool at the server, with these options, each with what its file has in it.
fn list(server: &TlsServer, options: &[(&str, &[u8])]) -> Output {
    let mut tool = Command::new(example::tool());
    tool.args(["ls", "--url", &format!("rediss://127.0.0.1:{}/", server.port)]);
    for (option, content) in options {
        let file = server.server.folder().join(&option[2..]);
        std::fs::write(&file, content).unwrap();
        tool.arg(option).arg(file);
    }
    tool.env_remove("REDIS_URL").output().unwrap()
}

#[tokio::test]
async fn the_tool_takes_an_authority_and_a_certificate_from_files() {
    let Some(server) = TlsServer::start("127.0.0.1", &[]) else { return };
    let (root, own) = (server.authority.root_cert(), server.authority.certificate("a client"));
    let stranger = Authority::create().certificate("a client");
    let client = client(&server.url(), &server.authority, Some(&server.authority));
    let semaphores = connect(client).await.unwrap();
    let _held = semaphores.semaphore("jobs").limit(3).build().unwrap().acquire().await.unwrap();

    let ca = ("--tls-ca", &*root);
    let pair = [("--tls-cert", &*own.client_cert), ("--tls-key", &*own.client_key)];
    let others = [("--tls-cert", &*stranger.client_cert), ("--tls-key", &*stranger.client_key)];
    let listed = list(&server, &[ca, pair[0], pair[1]]);
    let text = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.status.success() && text.contains("\njobs  1/3"), "{text}");
    for (options, words) in [
        (&pair[..], "signed its certificate: name the authority with --tls-ca, or in SSL_CERT"),
        (&[ca], "wants a certificate of its clients: give one with --tls-cert and --tls-key"),
        (
            &[ca, others[0], others[1]],
            "this client: give one with --tls-cert and --tls-key that an",
        ),
    ] {
        let refused = list(&server, options);
        let text = String::from_utf8(refused.stderr).unwrap();
        assert!(refused.status.code() == Some(69) && text.contains(words), "{text}");
    }
}
