//! Tests of errors. A chain of errors states each fact once, in a few lines. The tests also show
//! how a caller can use an error.

mod debug;
mod login;
mod not_ready;
mod passwords;
mod sentinels;
mod sources;
mod states;

use std::error::Error as StdError;
use std::time::Duration;

use redis::ErrorKind;
use redis_semaphore::{ConnectErrorKind, Error, ScriptRegistry, Semaphore, SemaphoreClient, redis};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use test_support::errors::{chain, kind_of};
use test_support::observer::in_time;
use test_support::proxy::{Flow, Proxy};
use test_support::server::{Server, shared_admin_url, shared_url, unique_name};

/// A timeout that is long enough for a reply on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Checks that no text in the chain contains another text, that no text is very long, and that the
/// first text is one line.
fn assert_reported_once(error: &Error) {
    let texts = chain(error);
    for (place, text) in texts.iter().enumerate() {
        let others = texts.iter().enumerate().filter(|(other, _)| *other != place);
        let mut repeated = others.filter(|(_, other)| other.contains(text.as_str()));
        assert_eq!(repeated.next(), None, "{text:?} appears twice: {texts:#?}");
        assert!(text.len() < 400, "{} bytes: {text}", text.len());
    }
    assert!(!texts[0].contains('\n'), "{:?}", texts[0]);
}

/// Starts a peer that is not Redis and that runs until the end of the test.
async fn peer<F: Future<Output = ()> + Send>(
    serve: impl Fn(TcpStream) -> F + Send + Copy + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move { serve(stream).await });
        }
    });
    format!("redis://{address}/")
}

async fn echo(mut stream: TcpStream) {
    let (mut reader, mut writer) = stream.split();
    // The client may close the connection at any time.
    let _ = tokio::io::copy(&mut reader, &mut writer).await;
}

async fn http(mut stream: TcpStream) {
    let mut asked = [0; 4096];
    let response = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    if stream.read(&mut asked).await.is_ok_and(|length| length > 0) {
        let _ = stream.write_all(response).await;
    }
}

async fn silent(mut stream: TcpStream) {
    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
}

async fn closes(mut stream: TcpStream) {
    let mut asked = [0; 4096];
    let _ = stream.read(&mut asked).await;
}

async fn wants_tls(mut stream: TcpStream) {
    let mut asked = [0; 4096];
    let _ = stream.read(&mut asked).await;
    // The bytes are a fatal TLS alert: unexpected message.
    let _ = stream.write_all(&[21, 3, 3, 0, 2, 2, 10]).await;
}

async fn refusal_within(url: &str, patience: Duration) -> Error {
    let connecting = SemaphoreClient::builder().response_timeout(patience).connect(url);
    in_time("a reply", connecting).await.expect_err("it is not Redis")
}

async fn refusal(url: &str) -> Error {
    refusal_within(url, PATIENCE).await
}

#[track_caller]
fn assert_says(error: &Error, kind: ConnectErrorKind, words: &[&str]) {
    assert_eq!(kind_of(error), Some(kind), "{error}");
    for words in words {
        assert!(error.to_string().contains(words), "{words:?} is not in: {error}");
    }
    assert_reported_once(error);
}

#[tokio::test]
async fn connecting_reports_that_nothing_listens_at_the_address() {
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = refusal(&format!("redis://{unused}/")).await;
    assert_says(
        &refused,
        ConnectErrorKind::Refused,
        &["nothing listens there", "start the server"],
    );
    assert!(!refused.to_string().contains("TLS"), "{refused}");
    let source = refused.source().expect("the system's error");
    assert!(source.to_string().contains("refused"), "{source}");
    let Error::Connect { source: Some(source), .. } = &refused else { panic!("{refused:?}") };
    assert!(source.is_connection_refusal());

    let socket = std::env::temp_dir().join(unique_name());
    let refused = refusal(&format!("redis+unix://{}", socket.display())).await;
    assert_says(&refused, ConnectErrorKind::Refused, &["the socket does not exist"]);
}

#[tokio::test]
async fn connecting_reports_a_host_name_that_cannot_be_resolved() {
    let refused = refusal("redis://no-such-host.invalid/").await;
    assert_says(&refused, ConnectErrorKind::Unreachable, &["the host name cannot be resolved"]);
}

#[tokio::test]
async fn connecting_reports_a_server_that_is_not_redis() {
    let refused = refusal(&peer(echo).await).await;
    assert_says(&refused, ConnectErrorKind::NotRedis, &["the server is not Redis", "PING"]);

    let with_password = peer(echo).await.replace("//", "//jobs:geheim@");
    let refused = refusal(&with_password).await;
    assert_says(&refused, ConnectErrorKind::NotRedis, &["the server is not Redis"]);

    let refused = refusal(&peer(http).await).await;
    let words = ["the server is not Redis; its reply was \"HTTP/1.1 400 Bad Request\""];
    assert_says(&refused, ConnectErrorKind::NotRedis, &words);

    let refused = refusal(&peer(wants_tls).await).await;
    assert_says(&refused, ConnectErrorKind::Tls, &["rediss:// instead of redis://"]);
    let refused = refusal(&peer(closes).await).await;
    assert_says(&refused, ConnectErrorKind::Closed, &["rediss:// instead of redis://"]);
}

#[tokio::test]
async fn connecting_reports_a_server_that_does_not_reply() {
    let refused = refusal_within(&peer(silent).await, Duration::from_millis(100)).await;
    let words = ["the server accepts connections but did not reply within 100 ms"];
    assert_says(&refused, ConnectErrorKind::TimedOut, &words);
}

#[tokio::test]
async fn connecting_reports_that_the_server_is_a_replica() {
    let primary = Server::start();
    let replica = Server::start_with(&["--replicaof", "127.0.0.1", &primary.port.to_string()]);
    let words = ["the server is a replica", "connect to the primary"];
    assert_says(&refusal(&replica.url()).await, ConnectErrorKind::Replica, &words);
}

#[tokio::test]
async fn connecting_reports_a_missing_select_right_and_an_unknown_database() {
    let server = Server::start();
    let refused = refusal(&format!("{}3", server.url())).await;
    let words = ["the user lacks the right +select"];
    assert_says(&refused, ConnectErrorKind::Permission, &words);
    let refused = refusal(&format!("{}99", server.admin_url())).await;
    let words = ["the server has no database with that number: use an existing one"];
    assert_says(&refused, ConnectErrorKind::Unusable, &words);
}

#[tokio::test]
async fn connecting_reports_sentinels_that_are_unreachable_or_ordinary_servers() {
    use redis::sentinel::{SentinelClient, SentinelServerType};

    let server = Server::start();
    for (url, kind, words) in [
        (
            String::from("redis://127.0.0.1:1/"),
            ConnectErrorKind::Refused,
            "the primary that the sentinels name",
        ),
        (
            server.admin_url(),
            ConnectErrorKind::Unusable,
            "given as a sentinel is not a sentinel: use the sentinels' addresses",
        ),
    ] {
        let (service, role) = (String::from("jobs"), SentinelServerType::Master);
        let client = SentinelClient::build(vec![url], service, None, role).unwrap();
        let connecting = SemaphoreClient::builder().connect_sentinel(client);
        let refused = in_time("a reply", connecting).await.unwrap_err();
        assert_says(&refused, kind, &[words]);
    }
}

#[tokio::test]
async fn errors_of_settings_name_the_setting_and_the_allowed_values() {
    let client = SemaphoreClient::connect(&test_support::server::shared_url()).await.unwrap();
    let builder = || client.semaphore("a").limit(1);
    let refused = builder().max_hold(Duration::ZERO).build().unwrap_err();
    assert_eq!(refused.to_string(), "max_hold: must be at least 10 ms, not 0ns");
    for share in [0, 1001] {
        let refused = builder().group_share(share).build().unwrap_err();
        assert_eq!(refused.to_string(), format!("group_share: must be 1 to 1000, not {share}"));
    }
    let refused = builder().group_cap(0).build().unwrap_err();
    assert_eq!(refused.to_string(), "group_cap: must be at least 1, not 0");
    let refused = builder().initial_permits(1).build().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "limit: must have exactly one of limit(), initial_permits() and existing_limit(); more \
         than one was given"
    );
    let refused = client.semaphore("a").build().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "limit: must have exactly one of limit(), initial_permits() and existing_limit(); none \
         was given"
    );
}

async fn semaphore(server: &Server) -> Semaphore {
    let client = SemaphoreClient::connect(&server.url()).await.unwrap();
    client.semaphore("wrong").limit(1).build().unwrap()
}

#[tokio::test]
async fn an_error_of_a_wrong_key_type_names_the_key_and_the_call() {
    let server = Server::start();
    redis::cmd("SET").arg("sem:{wrong}:state").arg("mine").exec(&mut server.connect()).unwrap();
    // The first call of each semaphore declares the limit.
    let refused = [
        ("acquire", semaphore(&server).await.acquire().await.unwrap_err()),
        ("try_acquire", semaphore(&server).await.try_acquire().await.unwrap_err()),
        ("set_limit", semaphore(&server).await.set_limit(1).await.unwrap_err()),
        ("add_permits", semaphore(&server).await.add_permits(1).await.unwrap_err()),
        ("clear_limit", semaphore(&server).await.clear_limit().await.unwrap_err()),
        ("limit", semaphore(&server).await.limit().await.unwrap_err()),
        ("available_permits", semaphore(&server).await.available_permits().await.unwrap_err()),
        ("inspect", semaphore(&server).await.inspect().await.unwrap_err()),
        ("wake", semaphore(&server).await.wake().await.unwrap_err()),
    ];
    for (called, error) in refused {
        let Error::Rejected { operation, source, .. } = &error else { panic!("{error:?}") };
        assert_eq!((*operation, source.code()), (called, Some("SEM_TYPE")));
        let found = format!(
            "semaphore wrong: {called} was rejected (127.0.0.1:{}: the key sem:{{wrong}}:state is \
             not a hash (SEM_TYPE)): delete the key",
            server.port
        );
        assert!(error.to_string().starts_with(&found), "{error}");
        assert_reported_once(&error);
        assert!(!error.is_transient());
    }
}

#[tokio::test]
async fn an_unavailable_error_names_the_call_and_rounds_the_duration() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let client = SemaphoreClient::connect(&proxy.url()).await.unwrap();
    let semaphore = client.semaphore("silent").limit(1).build().unwrap();
    semaphore.acquire().await.unwrap().release().await.unwrap();
    proxy.replies(Flow::Hold);
    let refused = semaphore.try_acquire().await.unwrap_err();
    let Error::Unavailable { operation: "try_acquire", .. } = &refused else {
        panic!("{refused:?}")
    };
    let text = refused.to_string();
    assert!(text.contains("semaphore silent: try_acquire failed for "), "{text}");
    assert!(!text.contains('µ') && !text.contains("00ms"), "{text}");
    assert!(refused.is_transient());
    assert_reported_once(&refused);
}

#[tokio::test]
async fn a_timeout_error_rounds_the_waiting_time_and_gives_advice() {
    let client = SemaphoreClient::connect(&test_support::server::shared_url()).await.unwrap();
    let semaphore = client.semaphore(unique_name()).limit(1).build().unwrap();
    let _held = semaphore.acquire().await.unwrap();
    let error = semaphore.acquire_timeout(Duration::from_millis(50)).await.unwrap_err();
    let Error::Timeout { waited, .. } = &error else { panic!("{error:?}") };
    let text = error.to_string();
    assert!(!text.contains(&format!("{waited:?}")), "{text}");
    assert!(text.contains(": retry, or use a longer timeout"), "{text}");
    let copy = error.clone();
    assert!(error.is_transient() && copy.to_string() == text);
    let heavy = semaphore.acquire_many(2).await.unwrap_err();
    assert!(heavy.to_string().contains("request less, or raise the limit"), "{heavy}");
    assert!(!heavy.is_transient());
}

#[tokio::test]
async fn the_error_of_a_lost_permit_names_the_method_that_was_called() {
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let builder = client.semaphore(unique_name()).limit(3).max_hold(Duration::from_millis(100));
    let semaphore = builder.build().unwrap();
    let lost = async || {
        let permit = semaphore.acquire().await.unwrap();
        in_time("the loss", permit.lost()).await;
        permit
    };
    let failed = [
        (lost().await.release().await, "release"),
        (lost().await.forget().await, "forget"),
        (lost().await.let_expire().await, "let_expire"),
    ];
    for (result, called) in failed {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Lost { operation, .. } if operation == called), "{error}");
    }
}

#[tokio::test]
async fn errors_of_the_script_registry_state_each_fact_once() {
    let client = redis::Client::open(shared_admin_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let none: [&str; 0] = [];
    let run = ScriptRegistry::embedded().run::<_, _, _, ()>(&mut connection, "wake", &none, &none);
    let refused = run.await.unwrap_err();
    assert!(matches!(&refused, Error::Redis(error) if error.code() == Some("SEM_KEYS")));
    assert_reported_once(&refused);
    assert!(!refused.is_transient());
    let passing = Error::from(redis::RedisError::from(std::io::Error::other("cut")));
    assert!(passing.is_transient());
    assert_reported_once(&passing);
    let wrong = Error::from(redis::RedisError::from((ErrorKind::InvalidClientConfig, "wrong")));
    assert!(!wrong.is_transient());
}
