//! Tests of temporary states of a server. Connecting can wait until such a state ends. Read-only
//! calls work during the state.

use std::time::Duration;

use redis_semaphore::{ConnectErrorKind, SemaphoreClient};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::{Instant, sleep_until};

use super::not_ready::EndlessScript;
use super::{assert_reported_once, assert_says, peer};
use test_support::errors::whole;
use test_support::observer::{eventually, in_time};
use test_support::proxy::Proxy;
use test_support::server::Server;

/// A timeout that is much longer than any of these states lasts in the tests.
const LONG: Duration = Duration::from_secs(120);

fn run(server: &Server, command: &str) {
    let words: Vec<&str> = command.split_whitespace().collect();
    redis::cmd(words[0]).arg(&words[1..]).exec(&mut server.connect()).unwrap();
}

/// Brings the server into a state. Without a command, the server fails to save (MISCONF).
fn enter(server: &Server, command: &str) {
    match command {
        "" => server.fail_to_save(),
        command => run(server, command),
    }
}

/// The text that a server returns in each state, and the commands that begin and end the state.
const BY_CONFIG: [(&str, &str, &str); 4] = [
    ("NOREPLICAS", "CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
    ("replica", "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
    ("its maximum number of connections", "CONFIG SET maxclients 1", "CONFIG SET maxclients 1000"),
    ("MISCONF", "", "CONFIG SET stop-writes-on-bgsave-error no"),
];

/// Checks that connecting outlasts the state, which ends after several attempts.
async fn outlasted(server: &Server, says: &str, end: impl FnOnce()) {
    let proxy = Proxy::start(server.port).await;
    let url = server.admin_url().replace(&server.port.to_string(), &proxy.port().to_string());
    let refused = SemaphoreClient::connect(&url).await.unwrap_err();
    assert!(refused.to_string().contains(says), "{says} is not in: {refused}");
    let before = proxy.accepted();
    let connecting = SemaphoreClient::builder().connect_timeout(LONG).connect(&url);
    let ending = async {
        // Each attempt makes two connections.
        eventually(says, async || proxy.accepted(), |tried| *tried >= before + 6).await;
        end();
    };
    let (connected, ()) = tokio::join!(in_time("a connection", connecting), ending);
    let semaphore = connected.unwrap().semaphore("states").limit(1).build().unwrap();
    semaphore.acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn connecting_waits_until_temporary_server_states_end() {
    for (says, begin, end) in BY_CONFIG {
        let server = Server::start();
        // This connection stays open, however many other clients connect.
        let mut admin = server.connect();
        enter(&server, begin);
        let words: Vec<&str> = end.split_whitespace().collect();
        let end = || redis::cmd(words[0]).arg(&words[1..]).exec(&mut admin).unwrap();
        outlasted(&server, says, end).await;
    }
    let server = Server::start();
    let script = EndlessScript::start(&server).await;
    outlasted(&server, "BUSY", || script.kill()).await;
}

#[tokio::test]
async fn connecting_is_retried_while_connections_are_refused() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    proxy.refuse_connections(true);
    let url = proxy.url();
    let connecting = SemaphoreClient::builder().connect_timeout(LONG).connect(&url);
    let ending = async {
        eventually("attempts", async || proxy.refused(), |tried| *tried >= 6).await;
        proxy.refuse_connections(false);
    };
    let (connected, ()) = tokio::join!(in_time("a connection", connecting), ending);
    connected.unwrap();
}

#[tokio::test]
async fn connecting_reports_a_wrong_password_before_the_connect_timeout() {
    let server = Server::start();
    let wrong = format!("redis://nobody:wrong@127.0.0.1:{}/", server.port);
    let connecting = SemaphoreClient::builder().connect_timeout(LONG).connect(&wrong);
    let refused = in_time("a reply", connecting).await.unwrap_err();
    assert_says(&refused, ConnectErrorKind::Authentication, &["WRONGPASS"]);
}

#[tokio::test]
async fn connecting_ends_at_the_connect_timeout_and_reports_the_cause() {
    let server = Server::start();
    run(&server, "CONFIG SET min-replicas-to-write 1");
    let timeout = Duration::from_secs(1);
    let url = server.url();
    let connecting = SemaphoreClient::builder().connect_timeout(timeout).connect(&url);
    let refused = in_time("a reply", connecting).await.unwrap_err();
    assert!(whole(&refused).contains("NOREPLICAS"), "{refused}");
}

/// Redis rejects even PING while it cannot save.
#[tokio::test]
async fn read_only_calls_work_while_the_server_rejects_writes() {
    let states = [
        ("", "saves"),
        ("CONFIG SET maxmemory 1", "memory"),
        ("CONFIG SET min-replicas-to-write 1", ""),
        ("REPLICAOF 127.0.0.1 1", "role"),
    ];
    for (begin, finding) in states {
        let server = Server::start();
        let writes = SemaphoreClient::connect(&server.admin_url()).await.unwrap();
        let written = writes.semaphore("states").limit(3).build().unwrap();
        let _permit = written.acquire().await.unwrap();
        enter(&server, begin);
        let reads = SemaphoreClient::builder().read_only().connect(&server.admin_url()).await;
        let reads = reads.unwrap_or_else(|error| panic!("{begin}: {}", whole(&error)));
        assert_eq!(reads.names().await.unwrap().names, ["states"], "{begin}");
        let semaphore = reads.semaphore("states").existing_limit().build().unwrap();
        assert_eq!(semaphore.inspect().await.unwrap().held, 1, "{begin}");
        assert_eq!(semaphore.limit().await.unwrap(), 3, "{begin}");
        let diagnosis = reads.doctor().await.unwrap().to_string();
        assert!(diagnosis.contains(finding), "{begin}: {diagnosis}");
    }
}

#[tokio::test]
async fn a_release_that_a_temporary_state_rejects_is_repeated() {
    for (begin, end) in [
        ("", "CONFIG SET stop-writes-on-bgsave-error no"),
        ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
    ] {
        let server = Server::start();
        let client = SemaphoreClient::connect(&server.admin_url()).await.unwrap();
        let semaphore = client.semaphore("states").limit(1).build().unwrap();
        let permit = semaphore.acquire().await.unwrap();
        enter(&server, begin);
        // Redis 6.2 counts the errors of scripts under another name.
        let errors = async || -> String {
            redis::cmd("INFO").arg("errorstats").query(&mut server.connect()).unwrap()
        };
        let before = errors().await;
        drop(permit);
        eventually("rejected", errors, |errors| *errors != before).await;
        run(&server, end);
        // The lease would end later.
        let _permit = in_time("the permit", semaphore.acquire()).await.unwrap();
    }
}

#[tokio::test]
async fn a_release_that_a_busy_server_rejects_is_repeated() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let client = SemaphoreClient::connect(&proxy.url()).await.unwrap();
    // The lease expires long after the test.
    let semaphore = client.semaphore("states").limit(1).lease(LONG * 10).build().unwrap();
    let permit = semaphore.acquire().await.unwrap();
    let script = EndlessScript::start(&server).await;
    let before = proxy.passed_requests();
    drop(permit);
    eventually("attempts", async || proxy.passed_requests(), |passed| *passed >= before + 2).await;
    script.kill();
    let _permit = in_time("the permit", semaphore.acquire()).await.unwrap();
}

/// The server is not too old: it supports the command, but its configuration disables the command.
#[tokio::test]
async fn connecting_names_a_command_that_the_server_has_disabled() {
    // PING is not renamed, because the test finds out with PING when the server has started.
    for command in ["PUBLISH", "SCRIPT", "EVALSHA", "EVAL", "SUBSCRIBE", "ZMSCORE", "TIME"] {
        let server = Server::start_with(&["--rename-command", command, ""]);
        let refused = SemaphoreClient::connect(&server.admin_url()).await.unwrap_err();
        let words = [command, "has renamed or disabled", "its version is"];
        assert_says(&refused, ConnectErrorKind::Unusable, &words);
        assert_reported_once(&refused);
        assert!(!whole(&refused).contains("local "), "no Lua: {}", whole(&refused));
    }
}

#[tokio::test]
async fn a_list_names_a_command_that_the_server_has_disabled() {
    let server = Server::start_with(&["--rename-command", "SCAN", ""]);
    let client = SemaphoreClient::connect(&server.admin_url()).await.unwrap();
    let refused = client.names().await.unwrap_err();
    assert_says(&refused, ConnectErrorKind::Unusable, &["has renamed or disabled SCAN"]);
}

/// Sends endless data, as fast as the client reads.
async fn endless(mut stream: TcpStream) {
    let piece = vec![b'a'; 1 << 20];
    let _ = stream.write_all(b"$900000000\r\n").await;
    while stream.write_all(&piece).await.is_ok() {}
}

#[tokio::test]
async fn connecting_fails_if_a_reply_never_ends() {
    let connecting =
        SemaphoreClient::builder().response_timeout(LONG).connect(&peer(endless).await).await;
    assert_says(
        &connecting.unwrap_err(),
        ConnectErrorKind::NotRedis,
        &["check which program listens there"],
    );
}

/// Delays each piece of data, as a long network path does.
async fn delayed(server: u16, delay: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
            let ((up, back), (responses, asks)) = (client.into_split(), server.into_split());
            tokio::spawn(carry(up, asks, delay));
            tokio::spawn(carry(responses, back, delay));
        }
    });
    format!("redis://{address}/")
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration) {
    let (sender, mut pieces) = unbounded_channel();
    let write = async {
        while let Some((at, piece)) = pieces.recv().await {
            sleep_until(at + delay).await;
            let piece: Vec<u8> = piece;
            if to.write_all(&piece).await.is_err() {
                return;
            }
        }
    };
    let read = async move {
        let mut piece = vec![0; 1 << 16];
        while let Ok(length @ 1..) = from.read(&mut piece).await {
            if sender.send((Instant::now(), piece[..length].to_vec())).is_err() {
                return;
            }
        }
    };
    tokio::join!(read, write);
}

/// The network is so slow that two round trips take longer than the response timeout.
#[tokio::test]
async fn each_step_of_connecting_has_the_response_timeout_for_itself() {
    let server = Server::start();
    let timeout = Duration::from_secs(4);
    let url = delayed(server.port, timeout * 3 / 10).await;
    let url = url.replace(
        "redis://",
        &server.admin_url().replace(&format!("127.0.0.1:{}/", server.port), ""),
    );
    let connecting = SemaphoreClient::builder().response_timeout(timeout).connect(&url);
    let client = in_time("a connection", connecting).await.unwrap();
    let slow = client.semaphore("slow").limit(1).build().unwrap();
    slow.acquire().await.unwrap().release().await.unwrap();

    let impatient = SemaphoreClient::builder().response_timeout(timeout / 20).connect(&url);
    let refused = in_time("an error", impatient).await.unwrap_err();
    let words = ["did not reply within 200 ms", "a slow network needs a longer response_timeout"];
    assert_says(&refused, ConnectErrorKind::TimedOut, &words);
}
