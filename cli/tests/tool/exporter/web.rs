//! Tests the address and the pages of the exporter, and how it ends.

use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;

use nix::sys::signal::Signal;

use super::scrape::{Exporter, command, get};
use crate::support::eventually_async;
use crate::support::process::catches;
use crate::support::server::Server;

#[tokio::test]
async fn the_exporter_listens_only_on_localhost_by_default() {
    let server = Server::start();
    // Another process may use the port for a moment.
    let start = async || Exporter::try_start(&mut command(&server.url, &[])).await;
    let exporter = eventually_async("a free port", start).await;
    assert_eq!(exporter.address, (Ipv4Addr::LOCALHOST, 10379).into());
    assert_eq!(exporter.scrape().await.one("up"), 1.0);
    let other = (Ipv4Addr::new(127, 0, 0, 2), 10379);
    assert!(TcpStream::connect(other).is_err());
}

#[tokio::test]
async fn the_exporter_listens_on_the_given_address() {
    let server = Server::start();
    let mut command = command(&server.url, &["--listen", "0.0.0.0:0"]);
    let exporter = Exporter::try_start(&mut command).await.unwrap();
    let other = (Ipv4Addr::new(127, 0, 0, 2), exporter.address.port());
    assert!(get(other.into(), "/metrics", "").await.head.starts_with("http/1.1 200"));
}

#[tokio::test]
async fn the_listen_address_may_have_a_host_name_or_only_a_port() {
    let server = Server::start();
    let mut everywhere = command(&server.url, &["--listen", ":0"]);
    let exporter = Exporter::try_start(&mut everywhere).await.expect("it listens everywhere");
    assert!(exporter.address.ip().is_unspecified(), "{}", exporter.address);

    let mut command = command(&server.url, &["--listen", "localhost:0"]);
    Exporter::try_start(&mut command).await.unwrap();
}

#[tokio::test]
async fn the_metrics_format_follows_the_accept_header() {
    let server = Server::start();
    let exporter = Exporter::start(&server.url, &[]).await;
    let plain = get(exporter.address, "/metrics", "").await.head;
    assert!(plain.contains("content-type: text/plain; version=0.0.4"), "{plain}");
    let accept = "Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3\r\n";
    let open = get(exporter.address, "/metrics", accept).await.head;
    assert!(open.contains("content-type: application/openmetrics-text; version=1.0.0"), "{open}");
    let index = get(exporter.address, "/", "").await;
    assert!(index.head.starts_with("http/1.1 200") && index.body.contains("href=\"metrics\""));
    assert!(get(exporter.address, "/other", "").await.head.starts_with("http/1.1 404"));
}

/// Starts the exporter through the program `starter`, which may change how signals are handled.
async fn started_by(starter: &[&str], server: &Server) -> Exporter {
    let exporter = command(&server.url, &["--listen", "127.0.0.1:0"]);
    let mut command = Command::new(starter[0]);
    command.args(&starter[1..]).arg(exporter.get_program()).args(exporter.get_args());
    Exporter::try_start(command.env("REDIS_URL", &server.url)).await.unwrap()
}

#[tokio::test]
async fn the_exporter_ends_with_success_on_sigterm_and_sigint() {
    let server = Server::start();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        // The tests may have been started with SIGINT ignored.
        let mut exporter = started_by(&["env", "--default-signal=INT"], &server).await;
        exporter.scrape().await;
        exporter.process.signal(signal);
        let ended = async || exporter.process.0.try_wait().unwrap();
        assert!(eventually_async("its end", ended).await.success());
    }
}

#[tokio::test]
async fn the_exporter_does_not_catch_sighup_under_nohup() {
    let server = Server::start();
    let exporter = started_by(&["nohup"], &server).await;
    exporter.scrape().await;
    let catches = |signal| catches(exporter.process.0.id() as i32, signal);
    assert!(catches(Signal::SIGTERM) && !catches(Signal::SIGHUP));
}

/// Clients that send nothing use all files that the exporter may open.
#[tokio::test]
async fn the_exporter_reports_that_it_accepts_no_connection() {
    let server = Server::start();
    let few = ["sh", "-c", "ulimit -n 32; exec \"$0\" \"$@\""];
    let exporter = started_by(&few, &server).await;
    let connect = |_| TcpStream::connect(exporter.address).unwrap();
    let silent: Vec<_> = (0..64).map(connect).collect();
    let is_reported = async || {
        let reported = exporter.reported();
        reported.iter().any(|line| line.contains("no connection can be accepted: ")).then_some(())
    };
    eventually_async("a note", is_reported).await;
    drop(silent);
    exporter.await_up(1.0).await;
}

#[tokio::test]
async fn wrong_exporter_options_fail_with_exit_status_2() {
    let server = Server::start();
    let exporter = Exporter::start(&server.url, &[]).await;
    let taken = exporter.address.to_string();
    let secret = "redis://:secret@127.0.0.1/";
    for wrong in [["--listen", &*taken], ["--url", secret]] {
        let output = command(&server.url, &wrong).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
    for (address, words) in [
        ("nowhere", "the port is missing: write HOST:PORT, such as 127.0.0.1:10379, or :10379"),
        ("10379", "write 127.0.0.1:10379 for this machine, or :10379"),
        ("127.0.0.1:", "a port is 0 to 65535"),
        ("127.0.0.1:http", "a port is 0 to 65535"),
        ("127.0.0.1:70000", "a port is 0 to 65535"),
        ("::1:10379", "in brackets, as in [::1]:10379"),
    ] {
        let output = command(&server.url, &["--listen", address]).output().unwrap();
        let reported = String::from_utf8(output.stderr).unwrap();
        assert!(
            output.status.code() == Some(2) && reported.contains(words),
            "{address}: {reported}"
        );
    }
}
