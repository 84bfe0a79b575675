//! Tests the values of the metrics.

use std::time::Duration;

use redis_semaphore::redis::cmd;
use redis_semaphore::{Semaphore, SemaphoreClient};

use super::scrape::{Exporter, use_all};
use crate::support::eventually_async;
use crate::support::server::{Server, until_queued};

const HOUR: Duration = Duration::from_secs(60 * 60);

#[tokio::test]
async fn the_exporter_reports_limits_held_weight_queue_and_wait() {
    let server = Server::start();
    let exporter = Exporter::start(&server.url, &[]).await;
    let client = server.semaphores().await;
    let full = client.semaphore("full").limit(5).build().unwrap();
    let _held = [full.acquire_many(3).await.unwrap(), full.acquire_many(2).await.unwrap()];
    let _waiting = [tokio::spawn(full.request().acquire()), tokio::spawn(full.request().acquire())];
    until_queued(&full, 2).await;
    let paused = client.semaphore("paused").limit(4).build().unwrap();
    let _held_on = paused.acquire().await.unwrap();
    paused.set_limit(0).await.unwrap();
    let textbook = client.semaphore("textbook").initial_permits(2).build().unwrap();
    textbook.acquire().await.unwrap().release().await.unwrap();

    let before = full.inspect().await.unwrap();
    let seen = exporter.scrape().await;
    let after = full.inspect().await.unwrap();
    let numbers =
        |name| ["limit", "declared_limit", "held", "queued"].map(|metric| seen.of(name, metric));
    assert_eq!(numbers("full"), [5.0, 5.0, 5.0, 2.0].map(Some));
    assert_eq!(numbers("paused"), [0.0, 4.0, 1.0, 0.0].map(Some));
    assert_eq!(numbers("textbook"), [Some(2.0), None, Some(0.0), Some(0.0)]);
    let [least, most] = [before, after].map(|now| now.waiters[0].waited.as_secs_f64());
    let wait = seen.of("full", "longest_wait_seconds").unwrap();
    assert!(least <= wait && wait <= most, "{least} {wait} {most}");
    assert_eq!(seen.of("paused", "longest_wait_seconds"), Some(0.0));
    assert_eq!(seen.semaphores(), ["full", "paused", "textbook"]);
    assert_eq!(seen.one("up"), 1.0);
    assert!(seen.one("scrape_seconds") > 0.0);
    let keys: f64 = cmd("DBSIZE").query(&mut server.connect()).unwrap();
    assert_eq!(seen.one("keys"), keys);
    assert_eq!((seen.omitted("max"), seen.omitted("rejected")), (0.0, 0.0));
}

async fn wait_of(exporter: &Exporter, name: &str) -> f64 {
    exporter.scrape().await.of(name, "longest_wait_seconds").unwrap()
}

#[tokio::test]
async fn a_head_start_does_not_count_as_waiting_time() {
    let server = Server::start();
    let exporter = Exporter::start(&server.url, &[]).await;
    let semaphore = server.semaphores().await.semaphore("jobs").limit(1).build().unwrap();
    let _held = semaphore.acquire().await.unwrap();
    let _first = tokio::spawn(semaphore.request().acquire());
    until_queued(&semaphore, 1).await;
    let before = wait_of(&exporter, "jobs").await;
    let _ahead = tokio::spawn(semaphore.request().head_start(HOUR).acquire());
    until_queued(&semaphore, 2).await;
    // A later request is now ahead of the first request in the queue, but the first request has
    // waited longer.
    let wait = wait_of(&exporter, "jobs").await;
    assert!((before..600.0).contains(&wait), "{wait}");
    let [ahead, first] = &semaphore.inspect().await.unwrap().waiters[..] else { panic!() };
    assert!(ahead.waited <= first.waited);
}

/// Queues a request of a process that then stops sending heartbeats.
fn wait_and_die(url: String, ahead: Duration) {
    let process = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    process.block_on(async {
        let client = SemaphoreClient::builder().heartbeat_timeout(Duration::from_millis(100));
        let client = client.connect(&url).await.unwrap();
        let semaphore = client.semaphore("jobs").limit(1).build().unwrap();
        let before = semaphore.inspect().await.unwrap().queued;
        tokio::spawn(semaphore.request().head_start(ahead).acquire());
        until_queued(&semaphore, before + 1).await;
    });
    // The runtime never polls its tasks again. The runtime is not dropped, because dropping it
    // would send the remaining calls.
    std::mem::forget(process);
}

async fn present(semaphore: &Semaphore) -> usize {
    let waiters = semaphore.inspect().await.unwrap().waiters;
    waiters.iter().filter(|waiter| waiter.alive_for.is_some()).count()
}

/// The requests of dead processes stay in the queue until their turn.
#[tokio::test(flavor = "multi_thread")]
async fn requests_of_dead_clients_do_not_count_in_the_longest_wait() {
    let server = Server::start();
    let exporter = Exporter::start(&server.url, &[]).await;
    let semaphore = server.semaphores().await.semaphore("jobs").limit(1).build().unwrap();
    let _held = semaphore.acquire().await.unwrap();
    let url = server.url.clone();
    tokio::task::spawn_blocking(move || wait_and_die(url, HOUR)).await.unwrap();
    let all_gone = async || (present(&semaphore).await == 0).then_some(());
    eventually_async("the end of its heartbeat timeout", all_gone).await;
    let seen = exporter.scrape().await;
    assert_eq!(seen.of("jobs", "queued"), Some(1.0));
    assert_eq!(seen.of("jobs", "longest_wait_seconds"), Some(0.0));
    let _living = tokio::spawn(semaphore.request().acquire());
    until_queued(&semaphore, 2).await;
    let seen = exporter.scrape().await;
    assert_eq!(seen.of("jobs", "queued"), Some(2.0));
    let wait = seen.of("jobs", "longest_wait_seconds").unwrap();
    assert!(wait < 600.0, "{wait}");
}

/// `inspect` lists the requests with a group after all others.
#[tokio::test(flavor = "multi_thread")]
async fn the_longest_wait_may_be_the_wait_of_a_group() {
    let server = Server::start();
    let exporter = Exporter::start(&server.url, &[]).await;
    let semaphore = server.semaphores().await.semaphore("jobs").limit(1).build().unwrap();
    let _held = semaphore.acquire().await.unwrap();
    let _first = tokio::spawn(semaphore.request().group("a").acquire());
    let has_waited = async || {
        let waiters = semaphore.inspect().await.unwrap().waiters;
        waiters.first().filter(|first| first.waited >= Duration::from_millis(500)).map(drop)
    };
    eventually_async("a wait that differs from the waits of the others", has_waited).await;
    let _others: Vec<_> = (0..150).map(|_| tokio::spawn(semaphore.request().acquire())).collect();
    until_queued(&semaphore, 151).await;
    let waiters = semaphore.inspect().await.unwrap().waiters;
    let of_group = waiters.last().unwrap();
    assert_eq!((of_group.group(), of_group.position), (Some("a"), 151));
    let waited = of_group.waited.as_secs_f64();
    let longest = exporter.scrape().await.of("jobs", "longest_wait_seconds").unwrap();
    assert!(longest >= waited, "{longest} {waited}");
}

/// A name may contain any characters except braces and control characters.
#[tokio::test]
async fn semaphore_names_are_escaped_in_metrics() {
    let server = Server::start();
    let exporter = Exporter::start(&server.url, &[]).await;
    let mut names = [r#"a "quoted" one"#, r"back\slash", r#"\""#, r"\n", "ключ-鍵-🔑", "a=\"b\",c"];
    use_all(&server, names).await;
    names.sort();
    let seen = exporter.scrape().await;
    assert_eq!(seen.semaphores(), names);
    assert_eq!(seen.of(r#"\""#, "limit"), Some(1.0));
}

#[tokio::test]
async fn the_exporter_reports_at_most_max_semaphores() {
    let server = Server::start();
    use_all(&server, ["a1", "a2", "a3", "b1", "b2"]).await;
    let exporter = Exporter::start(&server.url, &["--max-semaphores", "3"]).await;
    let seen = exporter.scrape().await;
    assert_eq!(seen.semaphores(), ["a1", "a2", "a3"]);
    assert_eq!((seen.one("up"), seen.omitted("max")), (1.0, 2.0));
    let exporter = Exporter::start(&server.url, &["--max-semaphores", "3", "--only", "?2"]).await;
    let seen = exporter.scrape().await;
    assert_eq!(seen.semaphores(), ["a2", "b2"]);
    assert_eq!(seen.omitted("max"), 0.0);
}

/// If a semaphore cannot be read, the exporter still reports the other semaphores.
#[tokio::test]
async fn a_semaphore_that_cannot_be_read_is_counted_as_rejected() {
    let server = Server::start();
    use_all(&server, ["good"]).await;
    let mut set = cmd("SET");
    set.arg("sem:{bad}:state").arg("no hash").exec(&mut server.connect()).unwrap();
    let exporter = Exporter::start(&server.url, &[]).await;
    let seen = exporter.scrape().await;
    assert_eq!(seen.semaphores(), ["good"]);
    assert_eq!((seen.one("up"), seen.omitted("rejected")), (1.0, 1.0));
}
