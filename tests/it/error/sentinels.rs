//! Tests of the errors of sentinels, and of the errors of the primary that the sentinels monitor.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use nix::sys::signal::Signal;
use redis_semaphore::{ConnectErrorKind, Error, IntoServer, SemaphoreClient};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{assert_says, peer};
use test_support::acl;
use test_support::observer::{in_time, passed};
use test_support::replicated::{Pair, SERVICE, Sentinels};
use test_support::server::{Server, unique_name};

async fn refusal(sentinels: &[String], primary: impl IntoServer) -> Error {
    let connecting = SemaphoreClient::builder().connect_sentinels(sentinels, SERVICE, primary);
    in_time("a reply", connecting).await.unwrap_err()
}

/// A user may have given the address of Redis instead of a sentinel's address.
#[tokio::test]
async fn connecting_reports_a_server_that_is_not_a_sentinel() {
    let server = Server::start();
    let refused = refusal(&[server.admin_url()], "redis://primary/").await;
    let words = ["is not a sentinel: use the sentinels' addresses (usually port 26379)"];
    assert_says(&refused, ConnectErrorKind::Unusable, &words);
    let Error::Connect { address, .. } = refused else { panic!("{refused:?}") };
    assert_eq!(address, format!("127.0.0.1:{}", server.port));
}

/// A user may have given the address of a sentinel instead of a server's address.
#[tokio::test]
async fn every_other_way_to_connect_reports_a_sentinel() {
    let pair = Pair::start();
    let sentinels = Sentinels::watch(&pair);
    let url = sentinels.urls().remove(0);
    let builder = SemaphoreClient::builder;
    let refused = SemaphoreClient::connect(&url).await.unwrap_err();
    assert_says(&refused, ConnectErrorKind::NotRedis, &["the server is a sentinel: connect with"]);
    let refused = builder().read_only().connect(&url).await.unwrap_err();
    assert_says(&refused, ConnectErrorKind::NotRedis, &["the server is a sentinel"]);
    let refused = builder().connect_primary_of([&*url]).await.unwrap_err();
    assert_says(&refused, ConnectErrorKind::NoPrimary, &["it is a sentinel"]);
    let refused = builder().connect_cluster([&*url]).await.unwrap_err();
    assert_says(&refused, ConnectErrorKind::Cluster, &["is not a cluster node", "as a sentinel"]);
}

/// The silent sentinel is the first in the list.
#[tokio::test]
async fn connecting_does_not_wait_for_a_silent_sentinel() {
    let pair = Pair::start();
    let sentinels = Sentinels::watch(&pair);
    sentinels.silence_first();
    // The timeout is longer than the test may take.
    let builder = SemaphoreClient::builder().response_timeout(Duration::from_secs(120));
    let connecting = builder.connect_sentinels(sentinels.urls(), SERVICE, "redis://primary/");
    in_time("a client", connecting).await.unwrap();
}

/// Until a failover is complete, the sentinels report the address of the former primary.
#[tokio::test]
async fn connecting_reports_that_the_server_of_the_sentinels_is_a_replica() {
    let pair = Pair::start();
    let sentinels = Sentinels::watch(&pair);
    sentinels.be_patient(Duration::from_secs(120));
    pair.promote(1);
    pair.demote(0, 1);
    let refused = refusal(&sentinels.urls(), "redis://primary/").await;
    let words = ["the primary that the sentinel at", "it is a replica: a failover may be"];
    assert_says(&refused, ConnectErrorKind::NoPrimary, &words);
    assert!(refused.is_transient());
}

/// The primary is silent, and the sentinels have ended. While some calls wait for the primary,
/// other calls make the client ask the sentinels. If a call gets no reply, its error names the
/// primary.
#[tokio::test]
async fn an_error_names_the_server_that_did_not_reply() {
    let pair = Pair::start();
    let sentinels = Sentinels::watch(&pair);
    let builder = SemaphoreClient::builder().response_timeout(Duration::from_secs(1));
    let connecting = builder.connect_sentinels(sentinels.urls(), SERVICE, "redis://primary/");
    let client = in_time("a client", connecting).await.unwrap();
    let semaphore = client.semaphore(unique_name()).limit(1).build().unwrap();
    pair.servers[0].signal(Signal::SIGSTOP);
    drop(sentinels);
    let begin = Instant::now();
    let inspect = async |number| {
        passed(begin + Duration::from_millis(100) * number).await;
        semaphore.inspect().await.unwrap_err()
    };
    let mut silences = 0;
    for refused in join_all((0..40).map(inspect)).await {
        let Error::Unavailable { server, source, .. } = refused else { panic!("{refused}") };
        if source.is_timeout() {
            assert_eq!(server, format!("127.0.0.1:{}", pair.servers[0].port), "{source}");
            silences += 1;
        }
    }
    assert!(silences > 0, "no call waited for the primary");
}

async fn requires_password(mut stream: TcpStream) {
    let mut asked = [0; 4096];
    while stream.read(&mut asked).await.is_ok_and(|length| length > 0) {
        let _ = stream.write_all(b"-NOAUTH Authentication required.\r\n").await;
    }
}

/// Only the URL of the primary has a password.
#[tokio::test]
async fn connecting_reports_a_sentinel_that_requires_a_password() {
    let refused = refusal(&[peer(requires_password).await], "redis://user:pw@primary/").await;
    let words = ["(a sentinel): the sentinel requires a password", "the URL of each sentinel"];
    assert_says(&refused, ConnectErrorKind::Authentication, &words);
}

#[tokio::test]
async fn connecting_reports_a_sentinels_primary_without_free_connections() {
    let pair = Pair::start();
    let sentinels = Sentinels::watch(&pair);
    let full = ["SET", "maxclients", "1"];
    redis::cmd("CONFIG").arg(&full).exec(&mut pair.servers[0].connect()).unwrap();
    let user = format!("redis://{}:{}@primary/", acl::USER, acl::PASSWORD);
    for primary in ["redis://primary/", "redis://primary/3", &user] {
        let refused = refusal(&sentinels.urls(), primary).await;
        let words = ["the primary that the sentinel at", "its maximum number of connections"];
        assert_says(&refused, ConnectErrorKind::NotReady, &words);
        assert!(refused.is_transient());
    }
}
