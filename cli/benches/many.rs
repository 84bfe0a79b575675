//! Measures `ls` and a scrape of `exporter` with 10,000 semaphores among a million other keys, and
//! how long one step of `SCAN` occupies the server.
//!
//! ```text
//! scripts/with-redis cargo bench -p redis-semaphore-cli --bench many
//! ```

#[path = "../tests/tool/exporter/metrics.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod metrics;
#[path = "../tests/tool/exporter/scrape.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod scrape;
#[path = "../tests/tool/support/mod.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod support;

use std::time::{Duration, Instant};

use redis::Connection;
use redis_semaphore::SemaphoreClient;
use tokio::task::JoinSet;

use scrape::Exporter;
use support::server::Server;

/// The shortest time of a call that is recorded in the server's slow log, in µs.
const SLOW: &str = "1000";
const OTHER_KEYS: &str = "for i = 1, ARGV[1] do redis.call('SET', 'other:' .. i, i) end";

#[tokio::main]
async fn main() {
    // With `--test`, this program only checks that the benchmark works. Benchmarks with criterion
    // do the same.
    let measures = std::env::args().all(|argument| argument != "--test");
    let (semaphores, others) = if measures { (10_000, 1_000_000) } else { (100, 10_000) };
    let server = Server::start();
    let mut connection = server.connect();
    redis::cmd("EVAL").arg(OTHER_KEYS).arg(0).arg(others).exec(&mut connection).unwrap();
    fill(&server.semaphores().await, semaphores).await;
    server.run(&format!("CONFIG SET slowlog-log-slower-than {SLOW}"));
    println!("{semaphores} semaphores among {others} other keys");

    reset(&server);
    let started = Instant::now();
    let list = server.tool(&["ls", "--json"]);
    let took = started.elapsed();
    assert_eq!(list.json()["semaphores"].as_array().unwrap().len(), semaphores);
    report("ls --json", took, &mut connection);
    println!("  {}", list.stderr.trim_end());

    let exporter = Exporter::start(&server.url, &["--max-semaphores", "20000"]).await;
    reset(&server);
    let started = Instant::now();
    let metrics = exporter.scrape().await;
    let took = started.elapsed();
    assert_eq!(metrics.semaphores().len(), semaphores);
    report("a scrape", took, &mut connection);
}

/// Acquires one permit of each semaphore. The permit stays taken for an hour after this client has
/// gone.
async fn fill(semaphores: &SemaphoreClient, number: usize) {
    let mut fills = JoinSet::new();
    for i in 0..number {
        let builder = semaphores.semaphore(format!("jobs-{i}")).limit(3);
        let semaphore = builder.lease(Duration::from_secs(3_600)).build().unwrap();
        fills.spawn(async move { semaphore.acquire().await?.let_expire().await });
    }
    while let Some(filled) = fills.join_next().await {
        filled.unwrap().unwrap();
    }
    semaphores.shutdown().await;
}

fn reset(server: &Server) {
    server.run("CONFIG RESETSTAT");
    server.run("SLOWLOG RESET");
}

fn report(what: &str, took: Duration, connection: &mut Connection) {
    println!("{what}: {took:.2?}");
    let stats: String = redis::cmd("INFO").arg("commandstats").query(connection).unwrap();
    // An entry of the slow log: number, time, microseconds, words, and the client's address and
    // name.
    type Call = (u64, u64, u64, Vec<String>, String, String);
    let slow: Vec<Call> = redis::cmd("SLOWLOG").arg(&["GET", "128"]).query(connection).unwrap();
    for command in ["scan", "evalsha"] {
        let start = format!("cmdstat_{command}:");
        let line = stats.lines().find_map(|line| line.strip_prefix(&start)).expect("it was called");
        let figure = |name: &str| {
            line.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('=')).unwrap()
        };
        let calls = slow.iter().filter(|call| call.3[0].eq_ignore_ascii_case(command));
        let longest = calls.map(|call| call.2).max();
        println!(
            "  {} of {command}, {} µs each, longest {}",
            figure("calls"),
            figure("usec_per_call"),
            longest.map_or("below 1 ms".to_owned(), |micros| format!("{micros} µs")),
        );
    }
}
