//! Tests the exporter while Redis is unavailable or slow.

use nix::sys::signal::Signal;
use test_support::proxy::Proxy;
use tokio::task::JoinSet;

use super::metrics::Metrics;
use super::scrape::{Exporter, get, use_all};
use crate::support::eventually_async;
use crate::support::server::Server;
use crate::support::tool::{Outcome, tool};

const FAST: [&str; 2] = ["--response-timeout", "200ms"];
/// With this response timeout, a call of the library fails only after 20 minutes.
const PATIENT: [&str; 2] = ["--response-timeout", "10min"];

#[tokio::test]
async fn the_up_metric_follows_the_state_of_the_server() {
    let mut server = Server::start();
    use_all(&server, ["jobs"]).await;
    let exporter = Exporter::start(&server.url, &FAST).await;
    assert_eq!(exporter.await_up(1.0).await.semaphores(), ["jobs"]);
    server.kill();
    // The page contains no old values, because a reader would consider them current.
    assert!(exporter.await_up(0.0).await.semaphores().is_empty());
    assert_eq!(exporter.scrape().await.one("up"), 0.0);
    server.start_again();
    use_all(&server, ["others"]).await;
    assert_eq!(exporter.await_up(1.0).await.semaphores(), ["others"]);
    exporter.logs_outage("redis-semaphore: ").await;
}

#[tokio::test]
async fn the_exporter_reports_the_reason_of_each_outage() {
    let mut server = Server::start();
    let exporter = Exporter::start(&server.url, &FAST).await;
    exporter.await_up(1.0).await;
    server.kill();
    exporter.scrape_until_logged("nothing listens there").await;
    server.start_again();
    server.signal(Signal::SIGSTOP);
    exporter.scrape_until_logged("no reply in time").await;
}

#[tokio::test]
async fn the_exporter_may_start_before_the_server() {
    let mut server = Server::start();
    server.kill();
    let exporter = Exporter::start(&server.url, &FAST).await;
    assert_eq!(exporter.scrape().await.one("up"), 0.0);
    server.start_again();
    exporter.await_up(1.0).await;
}

#[tokio::test]
async fn a_scrape_of_a_stopped_server_ends_after_the_timeout() {
    let server = Server::start();
    let arguments = [&PATIENT[..], &["--timeout", "500ms"]].concat();
    let exporter = Exporter::start(&server.url, &arguments).await;
    exporter.await_up(1.0).await;
    server.signal(Signal::SIGSTOP);
    let seen = exporter.scrape().await;
    assert_eq!(seen.one("up"), 0.0);
    assert!(seen.one("scrape_seconds") >= 0.5);
    server.signal(Signal::SIGCONT);
    exporter.await_up(1.0).await;
    exporter.logs_outage("could not be read within 500ms").await;
}

/// A stopped server delays a reply only until the timeout, and does not delay the end of the
/// exporter.
#[tokio::test]
async fn a_server_that_is_silent_from_the_start_does_not_block_scrapes() {
    let server = Server::start();
    server.signal(Signal::SIGSTOP);
    let arguments = [&PATIENT[..], &["--timeout", "500ms"]].concat();
    let mut exporter = Exporter::start(&server.url, &arguments).await;
    assert_eq!(exporter.scrape().await.one("up"), 0.0);
    exporter.process.signal(Signal::SIGTERM);
    let ended = async || exporter.process.0.try_wait().unwrap();
    assert!(eventually_async("its end", ended).await.success());
}

/// Prometheus sends its timeout in a header.
#[tokio::test]
async fn the_exporter_applies_the_scrape_timeout_of_prometheus() {
    let server = Server::start();
    let arguments = [&PATIENT[..], &["--timeout", "10min"]].concat();
    let exporter = Exporter::start(&server.url, &arguments).await;
    exporter.await_up(1.0).await;
    server.signal(Signal::SIGSTOP);
    let header = "X-Prometheus-Scrape-Timeout-Seconds: 0.5\r\n";
    let seen = Metrics::read(&get(exporter.address, "/metrics", header).await.body);
    assert_eq!(seen.one("up"), 0.0);
    server.signal(Signal::SIGCONT);
    exporter.await_up(1.0).await;
}

/// If a scrape times out, another scrape may wait longer and succeed.
#[tokio::test]
async fn a_scrape_with_too_short_a_timeout_is_not_logged_as_an_outage() {
    let server = Server::start();
    let arguments = [&PATIENT[..], &["--timeout", "10min"]].concat();
    let exporter = Exporter::start(&server.url, &arguments).await;
    exporter.await_up(1.0).await;
    server.signal(Signal::SIGSTOP);
    let patient = tokio::spawn(get(exporter.address, "/metrics", ""));
    let header = "X-Prometheus-Scrape-Timeout-Seconds: 3\r\n";
    let hasty = get(exporter.address, "/metrics", header).await;
    assert_eq!(Metrics::read(&hasty.body).one("up"), 0.0);
    server.signal(Signal::SIGCONT);
    assert_eq!(Metrics::read(&patient.await.unwrap().body).one("up"), 1.0);
    exporter.logs_nothing();
}

/// The system has several errors for a lost connection, and elapsed times differ.
#[tokio::test]
async fn a_reason_that_differs_only_in_details_is_logged_once() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let url = format!("redis://127.0.0.1:{}/", proxy.port());
    let exporter = Exporter::start(&url, &FAST).await;
    exporter.await_up(1.0).await;
    proxy.refuse_connections(true);
    proxy.cut_all();
    exporter.scrape_until_logged("the connection was lost").await;
    let reported = exporter.reported();
    for _ in 0..20 {
        assert_eq!(exporter.scrape().await.one("up"), 0.0);
    }
    assert_eq!(exporter.reported(), reported);
}

/// A reason that no longer holds would mislead the reader of the log.
#[tokio::test]
async fn a_slow_server_replaces_the_reason_of_an_outage() {
    let server = Server::start();
    let arguments = [&PATIENT[..], &["--timeout", "500ms"]].concat();
    let exporter = Exporter::start(&server.url, &arguments).await;
    server.run("ACL SETUSER default -scan");
    exporter.scrape_until_logged("ACL").await;
    server.run("ACL SETUSER default +scan");
    server.signal(Signal::SIGSTOP);
    assert_eq!(exporter.scrape().await.one("up"), 0.0);
    assert!(exporter.reported().last().unwrap().contains("ACL"));
    server.signal(Signal::SIGCONT);
    let slow = async || {
        let last = exporter.reported().pop()?;
        last.contains("could not be read within 500ms").then_some(())
    };
    eventually_async("the new reason", slow).await;
}

/// A call fails later than these scrapes, so its error arrives when no scrape waits for it.
#[tokio::test]
async fn the_reason_of_an_outage_is_logged_even_if_scrapes_time_out_first() {
    for arguments in [&[][..], &["--timeout", "50ms"], &["--timeout", "150ms"]] {
        let mut server = Server::start();
        let exporter = Exporter::start(&server.url, arguments).await;
        let header = "X-Prometheus-Scrape-Timeout-Seconds: 0.1\r\n";
        let scrape = async || {
            let scraped = get(exporter.address, "/metrics", header).await;
            Some(()).filter(|()| Metrics::read(&scraped.body).one("up") == 1.0)
        };
        eventually_async("up", scrape).await;
        server.kill();
        eventually_async("the reason", async || {
            assert!(scrape().await.is_none());
            let reported = exporter.reported();
            reported.last()?.contains("nothing listens there").then_some(())
        })
        .await;
        let reported = exporter.reported();
        for _ in 0..3 {
            assert!(scrape().await.is_none());
        }
        assert_eq!(exporter.reported(), reported);
    }
}

#[tokio::test]
async fn simultaneous_scrapes_share_one_read() {
    let server = Server::start();
    let arguments = [&PATIENT[..], &["--timeout", "5s"]].concat();
    let exporter = Exporter::start(&server.url, &arguments).await;
    exporter.await_up(1.0).await;
    server.signal(Signal::SIGSTOP);
    let scrapes = (0..20).map(|_| get(exporter.address, "/metrics", ""));
    let mut scrapes: JoinSet<_> = scrapes.collect();
    let first = scrapes.join_next().await.unwrap().unwrap().body;
    // The text contains the elapsed time, which differs from read to read. So equal texts come from
    // one read.
    while let Some(other) = scrapes.join_next().await {
        assert_eq!(other.unwrap().body, first);
    }
    server.signal(Signal::SIGCONT);
}

#[test]
fn an_exporter_timeout_of_0_is_rejected() {
    Outcome::of(tool(&["exporter", "--timeout", "0s"])).fails(2, "50ms or more");
}
