//! Tests of connecting over TCP and Unix sockets, with passwords, users and databases. The tests
//! also check the errors of failed attempts.

use std::time::Duration;

use redis_semaphore::{Error, SemaphoreClient};

use test_support::acl;
use test_support::observer::{Observer, in_time};
use test_support::server::{Server, shared_url, unique_name};

async fn try_out(url: &str) {
    let client = SemaphoreClient::connect(url).await.unwrap();
    let semaphore = client.semaphore(unique_name()).limit(1).build().unwrap();
    let permit = semaphore.acquire().await.unwrap();
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await }
    });
    Observer::of(semaphore).sees(1, 1).await;
    permit.release().await.unwrap();
    in_time("its turn", waiting).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_client_can_use_tcp_a_unix_socket_and_another_database() {
    let server = Server::start();
    let mut admin = server.connect();
    server.grant("+select");
    let socket = format!(
        "redis+unix://{}?user={}&pass={}",
        server.socket().display(),
        acl::USER,
        acl::PASSWORD
    );
    for url in [
        server.url(),
        format!("{}3", server.url()),
        format!("{}?protocol=resp3", server.url()),
        format!("{socket}&db=2"),
        socket,
    ] {
        try_out(&url).await;
    }
    let keys: i64 = redis::cmd("DBSIZE").query(&mut admin).unwrap();
    assert!(keys > 0, "database 0 was used, too");
}

#[tokio::test]
async fn a_client_connects_with_a_password() {
    let server = Server::start();
    let password = ["requirepass", "geheim"];
    redis::cmd("CONFIG").arg("SET").arg(&password).exec(&mut server.connect()).unwrap();
    try_out(&format!("redis://:geheim@127.0.0.1:{}/", server.port)).await;
}

#[tokio::test]
async fn invalid_client_settings_are_rejected_before_connecting() {
    let builder = SemaphoreClient::builder;
    let long = "x".repeat(201);
    for (what, builder) in [
        ("prefix", builder().prefix("")),
        ("prefix", builder().prefix("a{b")),
        ("prefix", builder().prefix("a b")),
        ("prefix", builder().prefix(long.as_str())),
        ("client name", builder().client_name("")),
        ("client name", builder().client_name("two words")),
        ("client name", builder().client_name("line\nbreak")),
        ("client name", builder().client_name("a:b")),
        ("client name", builder().client_name("wörter")),
        ("client name", builder().client_name(long.as_str())),
        ("response_timeout", builder().response_timeout(Duration::ZERO)),
        ("heartbeat_timeout", builder().heartbeat_timeout(Duration::from_millis(99))),
        ("heartbeat_timeout", builder().heartbeat_timeout(Duration::MAX)),
    ] {
        match builder.connect("redis://127.0.0.1:1/").await {
            Err(Error::Invalid { what: refused, .. }) => assert_eq!(refused, what),
            other => panic!("{what}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn invalid_semaphore_settings_and_weights_are_rejected() {
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let named = |name: &str| client.semaphore(name.to_owned()).limit(1);
    let ok = || client.semaphore("ok");
    let week = Duration::from_secs(7 * 24 * 60 * 60);
    for (what, builder) in [
        ("name", named("")),
        ("name", named("{a}")),
        ("name", named("a}b")),
        ("name", named("a\nb")),
        ("name", named("a\u{0}b")),
        ("name", named("a\u{7f}b")),
        ("name", named(&"x".repeat(513))),
        ("limit", ok()),
        ("limit", ok().limit(0)),
        ("limit", ok().limit(1).initial_permits(1)),
        ("lease", ok().limit(1).lease(Duration::from_millis(9))),
        ("lease", ok().limit(1).lease(week + Duration::from_millis(1))),
        ("lease", ok().limit(1).lease(Duration::MAX)),
        ("max_hold", ok().limit(1).max_hold(Duration::ZERO)),
    ] {
        match builder.build() {
            Err(Error::Invalid { what: refused, .. }) => assert_eq!(refused, what),
            other => panic!("{what}: {other:?}"),
        }
    }
    let refused = ok().limit(0).build().unwrap_err().to_string();
    assert!(refused.ends_with("must be at least 1; set_limit(0) pauses a semaphore"), "{refused}");
    assert!(named(&"x".repeat(512)).lease(week).max_hold(Duration::MAX).build().is_ok());
    let odd = named("näme with blanks: * [a] \\ \"q\" \u{85}").build().unwrap();
    odd.acquire().await.unwrap().release().await.unwrap();

    let semaphore = named(&unique_name()).build().unwrap();
    assert!(matches!(semaphore.acquire_many(0).await, Err(Error::Invalid { what: "weight", .. })));
    assert!(matches!(semaphore.try_acquire_many(0).await, Err(Error::Invalid { .. })));
    let refused = semaphore.acquire_many(u32::MAX).await.unwrap_err();
    assert!(matches!(refused, Error::TooHeavy { weight: u32::MAX, limit: 1, .. }), "{refused}");
}
