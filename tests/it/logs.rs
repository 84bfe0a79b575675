use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::Signal;
use redis_semaphore::{Error, SemaphoreClient};
use tokio::time::timeout;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::util::SubscriberInitExt;

use test_support::cluster::Cluster;
use test_support::observer::{eventually, in_time, refreshed};
use test_support::proxy::Proxy;
use test_support::replicated::{Pair, SERVICE, Sentinels};
use test_support::server::{Server, shared_url, unique_name};

/// A lease that is so short that it is refreshed often.
const SHORT: Duration = Duration::from_secs(6);

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0.lock().unwrap()))
    }
}

/// Writes the log lines of this thread while the guards exist.
pub fn log_here<W: Write + 'static>(
    level: LevelFilter,
    writer: impl Fn() -> W + Send + Sync + 'static,
) -> [impl Sized; 2] {
    // With only one subscriber, `tracing` asks only the thread that first reaches a log line whether
    // the line is enabled. If that thread belongs to another test, the line stays disabled for all
    // threads.
    let not_the_only_one = tracing_subscriber::fmt().with_writer(io::sink).finish();
    let not_the_only_one = not_the_only_one.set_default();
    let subscriber = tracing_subscriber::fmt().with_max_level(level).with_writer(writer);
    [subscriber.with_ansi(false).finish().set_default(), not_the_only_one]
}

impl Log {
    /// Collects the log lines of this thread while the guards exist.
    fn here() -> (Self, [impl Sized; 2]) {
        let log = Self::default();
        let writer = log.clone();
        (log, log_here(LevelFilter::INFO, move || writer.clone()))
    }

    fn count(&self, words: &[&str]) -> usize {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| words.iter().all(|word| line.contains(word))).count()
    }

    fn losses_of(&self, id: &str) -> usize {
        self.count(&["permit lost", id])
    }
}

/// Each loss is logged once, however the holder finds out about the loss. The test also drops and
/// detaches lost permits.
#[tokio::test]
async fn each_loss_is_logged_once() {
    let (log, _logged) = Log::here();
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let builder = || client.semaphore(unique_name()).limit(1);
    let mut lost = Vec::new();

    let unrefreshed =
        builder().lease(Duration::from_millis(100)).auto_refresh(false).build().unwrap();
    for drops in [true, false] {
        let permit = unrefreshed.acquire().await.unwrap();
        lost.push(permit.id().to_owned());
        in_time("the loss", permit.lost()).await;
        match drops {
            true => drop(permit),
            false => drop(permit.detach()),
        }
    }
    let refreshed = builder().lease(Duration::from_secs(3)).build().unwrap();
    let permit = refreshed.acquire().await.unwrap();
    lost.push(permit.id().to_owned());
    refreshed.revoke(permit.id()).await.unwrap();
    in_time("the next refresh", permit.lost()).await;
    assert!(matches!(permit.release().await, Err(Error::Lost { .. })));

    let permit = refreshed.acquire().await.unwrap();
    lost.push(permit.id().to_owned());
    refreshed.revoke(permit.id()).await.unwrap();
    assert!(matches!(permit.release().await, Err(Error::Lost { .. })));
    let sound = refreshed.acquire().await.unwrap();
    let held = sound.id().to_owned();
    sound.release().await.unwrap();

    client.shutdown().await;
    assert_eq!(lost.iter().map(|id| log.losses_of(id)).collect::<Vec<_>>(), [1; 4]);
    assert_eq!(log.losses_of(&held), 0);
}

/// A refresh that is under way at the deadline does not delay the log of the loss, and its failure
/// is not logged.
#[tokio::test]
async fn a_permit_that_cannot_be_refreshed_is_logged_as_lost_at_its_deadline() {
    let (log, _logged) = Log::here();
    let server = Server::start();
    let client = SemaphoreClient::connect(&server.url()).await.unwrap();
    let semaphore = client.semaphore("stopped").limit(1).lease(SHORT).build().unwrap();
    let permit = semaphore.acquire().await.unwrap();
    server.signal(Signal::SIGSTOP);
    in_time("the loss", permit.lost()).await;
    let failures = || log.count(&["refreshing failed"]);
    let before = failures();
    let losses = async || log.losses_of(permit.id());
    eventually("logged", losses, |losses| *losses == 1).await;
    server.signal(Signal::SIGCONT);
    let _next = in_time("a permit", semaphore.acquire()).await.unwrap();
    assert_eq!(failures(), before, "{log:?}");
}

/// The reason in the log is the reason for the failed calls of the same script.
#[tokio::test]
async fn permits_that_expire_before_their_release_are_logged_with_the_reason() {
    let (log, _logged) = Log::here();
    let mut server = Server::start();
    let builder = SemaphoreClient::builder().response_timeout(Duration::from_millis(100));
    let client = builder.connect(&server.url()).await.unwrap();
    let semaphore = client.semaphore("late").limit(2).lease(SHORT).build().unwrap();
    let (released, left) = (semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap());
    server.kill();
    drop(released);
    assert!(left.let_expire().await.is_err());
    let reason = format!("127.0.0.1:{}: nothing listens there", server.port);
    for text in ["could not be released before their leases", "the last refresh of permits left"] {
        let lines = async || log.count(&[text, "permits=1", &reason]);
        eventually(text, lines, |lines| *lines == 1).await;
    }
}

/// Only a change of the declared limit logs a warning. The new limit may come from another client
/// or from the same client.
#[tokio::test]
async fn a_change_of_the_declared_limit_is_logged_once() {
    let (log, _logged) = Log::here();
    let name = unique_name();
    for (limit, warnings) in [(3, 0), (3, 0), (5, 1)] {
        let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
        let semaphore = client.semaphore(&name).limit(limit).build().unwrap();
        for _ in 0..2 {
            semaphore.acquire().await.unwrap().release().await.unwrap();
        }
        let differs = ["WARN", "the limit was declared differently before", &name];
        assert_eq!(log.count(&differs), warnings, "limit {limit}");
    }
    assert_eq!(log.count(&["declared=5 before=3", &name]), 1);
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    for limit in [5, 4] {
        let semaphore = client.semaphore(&name).limit(limit).build().unwrap();
        semaphore.acquire().await.unwrap().release().await.unwrap();
    }
    assert_eq!(log.count(&["declared=4 before=5", &name]), 1);
    assert_eq!(log.count(&["another client"]), 0);
}

/// Proxies, and servers with a `timeout`, cut connections. A cut is not logged if the next attempt
/// to connect succeeds.
#[tokio::test]
async fn a_cut_connection_is_not_logged_if_the_next_attempt_succeeds() {
    let (log, _logged) = Log::here();
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let client = SemaphoreClient::connect(&proxy.url()).await.unwrap();
    let semaphore = client.semaphore(unique_name()).limit(1).lease(SHORT).build().unwrap();
    let permit = semaphore.acquire().await.unwrap();
    for cut in [Proxy::cut_commands, Proxy::cut_wakeups, Proxy::cut_all] {
        // When the client replaces the connection for commands, it also subscribes again.
        eventually("both connections", async || proxy.open(), |open| *open == [1, 1]).await;
        let before = proxy.accepted();
        cut(&proxy);
        eventually("a new connection", async || proxy.accepted(), |now| *now > before).await;
        refreshed(&permit).await;
    }
    assert_eq!(log.count(&["redis_semaphore"]), 0, "{log:?}");
    permit.release().await.unwrap();
}

/// While the keys of a slot are on two nodes, calls for the slot are retried. The node serves its
/// other slots.
#[tokio::test]
async fn a_moving_slot_is_not_logged_as_an_outage_of_its_node() {
    let Some(cluster) = Cluster::start(2, false).await else { return };
    let (log, _logged) = Log::here();
    let builder = SemaphoreClient::builder().response_timeout(Duration::from_millis(500));
    let client = builder.connect_cluster(cluster.urls()).await.unwrap();
    let name = cluster.name_at(0);
    let semaphore = client.semaphore(&name).limit(2).build().unwrap();
    let permit = semaphore.acquire().await.unwrap();
    cluster.begin_to_move(&name, 0, 1, &["permits", "queue"]);
    let refused = semaphore.try_acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused}");
    cluster.begin_to_move(&name, 0, 1, &["clients", "state"]);
    cluster.end_move(&name, 1);
    let refresh = async || permit.refresh().await;
    eventually("a refresh that succeeds", refresh, Result::is_ok).await.unwrap();
    assert_eq!(log.count(&["Redis is "]), 0, "{log:?}");
}

/// An outage is logged once, even if many attempts fail or some connections succeed.
#[tokio::test]
async fn an_outage_is_logged_once_with_its_reason_and_its_end() {
    let (log, _logged) = Log::here();
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let client = SemaphoreClient::connect(&proxy.url()).await.unwrap();
    let semaphore = client.semaphore(unique_name()).limit(1).build().unwrap();
    let server_is = |command: &str| {
        let words: Vec<&str> = command.split_whitespace().collect();
        redis::cmd(words[0]).arg(&words[1..]).exec(&mut server.connect()).unwrap();
    };
    server_is("REPLICAOF 127.0.0.1 1");
    let connections = proxy.accepted();
    let tried = async {
        let many = |accepted: &usize| *accepted > connections + 6;
        let looked = async || {
            // The result does not matter: the connection may be cut, and a read may succeed
            // although writes fail.
            let _ = semaphore.inspect().await;
            proxy.accepted()
        };
        eventually("attempts", looked, many).await;
        server_is("REPLICAOF NO ONE");
    };
    let (acquired, ()) = tokio::join!(semaphore.acquire(), tried);
    acquired.unwrap().release().await.unwrap();
    let address = format!("127.0.0.1:{}", proxy.port());
    let commands = "connection=\"commands\"";
    let reported = ["WARN", "Redis is unavailable", "READONLY", &address, commands];
    assert_eq!(log.count(&reported), 1, "{log:?}");
    assert_eq!(log.count(&["WARN", commands]), 1, "{log:?}");
    assert_eq!(log.count(&["INFO", "Redis is available again", &address, commands]), 1, "{log:?}");
}

/// After another server has replaced the failed server, the log of the outage's end must not name
/// the failed server.
#[tokio::test]
async fn the_end_of_an_outage_names_the_server_that_is_available() {
    let (log, _logged) = Log::here();
    let mut pair = Pair::start();
    let client = SemaphoreClient::builder().connect_primary_of(pair.urls()).await.unwrap();
    let semaphore = client.semaphore(unique_name()).limit(1).build().unwrap();
    pair.servers[0].kill();
    let outages = async || {
        // The call only makes the client notice the outage.
        let _ = timeout(Duration::from_millis(100), semaphore.acquire()).await;
        ["commands", "messages"].map(|line| log.count(&["Redis is unavailable", line]))
    };
    eventually("both outages", outages, |outages| *outages == [1, 1]).await;
    pair.promote(1);
    semaphore.acquire().await.unwrap().release().await.unwrap();
    let ends = "Redis is available again";
    eventually("both ends", async || log.count(&[ends]), |ends| *ends == 2).await;
    let server = format!("server=\"127.0.0.1:{}\"", pair.servers[1].port);
    assert_eq!(log.count(&[ends, &server]), 2, "{log:?}");
}

/// The first successful connection may be to a server that did not fail. The log of this connection
/// must not name the server of the earlier failed attempts.
#[tokio::test]
async fn the_first_connection_is_logged_without_the_server_of_an_earlier_failure() {
    let (log, _logged) = Log::here();
    let mut pair = Pair::start();
    let sentinels = Sentinels::watch(&pair);
    pair.servers[0].kill();
    let builder = SemaphoreClient::builder().connect_timeout(Duration::from_secs(60));
    let fails_over = async {
        let warned = async || log.count(&["Redis is unavailable; connecting is retried"]);
        eventually("a warning", warned, |warned| *warned == 1).await;
        sentinels.be_patient(Duration::from_secs(1));
    };
    let connect = builder.connect_sentinels(sentinels.urls(), SERVICE, "redis://primary/");
    let (client, ()) = tokio::join!(connect, fails_over);
    client.unwrap();
    let dead = format!("127.0.0.1:{}", pair.servers[0].port);
    assert_eq!(log.count(&["WARN", "Redis is unavailable", &dead]), 1, "{log:?}");
    let available = ["INFO", "Redis is available", "the primary of the sentinels"];
    assert_eq!(log.count(&available), 1, "{log:?}");
    assert_eq!(log.count(&["INFO", &dead]), 0, "{log:?}");
}

/// A granted permit shows that the server accepts writes. The outage is therefore over, even if
/// another script was rejected.
#[tokio::test]
async fn a_grant_logs_the_end_of_an_outage_in_which_another_script_was_rejected() {
    let (log, _logged) = Log::here();
    let server = Server::start();
    let replicas_are_needed = |number: &str| {
        let set = ["SET", "min-replicas-to-write", number];
        redis::cmd("CONFIG").arg(&set).exec(&mut server.connect()).unwrap();
    };
    let builder = SemaphoreClient::builder().response_timeout(Duration::from_millis(200));
    let client = builder.connect(&server.url()).await.unwrap();
    let semaphore = client.semaphore(unique_name()).limit(1).build().unwrap();
    let counts = |words: &str| log.count(&[words, "connection=\"commands\""]);
    for outage in 1..3 {
        replicas_are_needed("1");
        semaphore.set_limit(5).await.unwrap_err();
        assert_eq!(counts("Redis is unavailable"), outage, "{log:?}");
        replicas_are_needed("0");
        semaphore.acquire().await.unwrap().release().await.unwrap();
        assert_eq!(counts("Redis is available again"), outage, "{log:?}");
    }
}

/// The log must not send an engineer to look for a network failure.
#[tokio::test]
async fn full_memory_is_logged_as_a_rejection_and_not_as_an_outage() {
    let (log, _logged) = Log::here();
    let server = Server::start();
    let client = SemaphoreClient::connect(&server.url()).await.unwrap();
    let semaphore = client.semaphore(unique_name()).limit(1).build().unwrap();
    let limit_memory_to = |bytes: &str| {
        redis::cmd("CONFIG").arg(&["SET", "maxmemory", bytes]).exec(&mut server.connect()).unwrap();
    };
    limit_memory_to("1");
    for _ in 0..3 {
        semaphore.try_acquire().await.unwrap_err();
    }
    assert_eq!(log.count(&["WARN", "Redis rejects new requests", "OOM"]), 1, "{log:?}");
    assert_eq!(log.count(&["unavailable"]), 0, "{log:?}");
    limit_memory_to("0");
    semaphore.acquire().await.unwrap().release().await.unwrap();
    assert_eq!(log.count(&["INFO", "Redis is available again"]), 1, "{log:?}");
}

/// If a cluster is down, its nodes reject calls of scripts, but reply to other commands.
#[tokio::test]
async fn an_outage_of_a_cluster_is_logged_once_with_its_end() {
    let Some(mut cluster) = Cluster::start(3, false).await else { return };
    let (log, _logged) = Log::here();
    // Each failed call makes the client read the map of the slots.
    let builder = SemaphoreClient::builder().response_timeout(Duration::from_millis(500));
    let client = builder.connect_cluster(cluster.urls()).await.unwrap();
    let semaphore = client.semaphore(cluster.name_at(0)).limit(1).build().unwrap();
    cluster.nodes[2].kill();
    let is_down =
        async || semaphore.try_acquire().await.map(drop).map_err(|error| error.to_string());
    let says = |response: &Result<(), String>| {
        response.as_ref().is_err_and(|error| error.contains("CLUSTERDOWN"))
    };
    eventually("down", is_down, says).await.unwrap_err();
    let maps = cluster.nodes[0].calls("cluster|slots");
    let reads = async || {
        semaphore.try_acquire().await.unwrap_err();
        cluster.nodes[0].calls("cluster|slots")
    };
    eventually("several maps", reads, |now| *now >= maps + 3).await;
    cluster.nodes[2].start_again();
    let is_back = async || semaphore.acquire().await.map_err(|error| error.to_string());
    eventually("a permit", is_back, Result::is_ok).await.unwrap().release().await.unwrap();
    let address = format!("127.0.0.1:{}", cluster.nodes[0].port);
    let count = |words: &str| log.count(&[words, &address, "connection=\"commands\""]);
    assert_eq!(count("Redis is unavailable"), 1, "{log:?}");
    assert_eq!(count("Redis is available again"), 1, "{log:?}");
}

/// This server may be a second primary, which would grant the same permits.
#[tokio::test]
async fn a_listed_server_that_rejects_the_user_is_logged() {
    let (log, _logged) = Log::here();
    let (primary, other) = (Server::start(), Server::start());
    primary.grant("+role");
    let mut password = redis::cmd("CONFIG");
    password.arg(&["SET", "requirepass", "another"]).exec(&mut other.connect()).unwrap();
    let list = [primary.url(), format!("redis://127.0.0.1:{}/", other.port)];
    // On a busy machine, the client may connect before the other server has replied.
    let warned = async || {
        SemaphoreClient::builder().connect_primary_of(&list).await.unwrap();
        log.count(&["WARN", "the role of a server is unknown", "requires a password"])
    };
    eventually("a warning", warned, |warnings| *warnings > 0).await;
}
