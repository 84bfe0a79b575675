//! Tests the CLI if Redis becomes unavailable while the CLI waits for a permit or has to release a
//! permit.

use std::os::unix::process::ExitStatusExt;

use nix::sys::signal::Signal;
use redis_semaphore::ScriptRegistry;
use test_support::cluster::Cluster;
use test_support::proxy::{Flow, Proxy};
use test_support::replicated::Pair;

use super::support::server::{await_held_and_queued, connect, lease_end};
use super::support::tool::{Tool, outcome, run};
use crate::support::server::Server;
use crate::support::{eventually, unique_name};

/// With this response timeout, a CLI that waited for replies would outlast the test.
const PATIENT: [&str; 4] = ["--response-timeout", "10min", "--limit", "1"];

fn start(server: &Server, arguments: &[&str]) -> Tool {
    Tool::start(&mut run(&server.url, arguments))
}

/// Starts a CLI that holds a permit, and a CLI that waits with these arguments.
fn two(server: &Server, name: &str, arguments: &[&str]) -> (Tool, Tool) {
    let holder = start(server, &[name, "--limit", "1", "--", "sh", "-c", "echo on; sleep 600"]);
    assert_eq!(holder.line(), "on");
    let waiter = start(server, &[&[name], arguments, &["--", "echo", "ran"]].concat());
    await_held_and_queued(&server.url, name, (1, 1));
    (holder, waiter)
}

/// Checks that the beginning of the outage, with server and reason, and its end are each reported
/// once.
fn assert_reported_once(reported: &str, name: &str) {
    let lines: Vec<&str> = reported.lines().collect();
    let is_so = matches!(lines[..], [begins, ends]
        if begins.starts_with(&format!("redis-semaphore: semaphore {name}: Redis at 127.0.0.1:"))
            && begins.contains(" is unavailable: ")
            && begins.ends_with("; retrying")
            && ends == format!("redis-semaphore: semaphore {name}: Redis is available again"));
    assert!(is_so, "{reported}");
}

/// A CLI that starts during an outage waits for the end of the outage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_begins_in_an_outage_waits_for_the_end_of_the_outage() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let url = format!("redis://127.0.0.1:{}/", proxy.port());
    for (timeout, refused) in [(&["--timeout", "2min"][..], 6), (&[], 12)] {
        proxy.refuse_connections(true);
        let name = unique_name();
        let arguments = [&[&*name, "--limit", "1"], timeout, &["--", "echo", "ran"]].concat();
        let mut tool = Tool::start(&mut run(&url, &arguments));
        eventually("attempts", || (proxy.refused() >= refused).then_some(()));
        proxy.refuse_connections(false);
        assert_eq!((tool.ended().code(), &*tool.line()), (Some(0), "ran"));
        assert_reported_once(&tool.errors(), &name);
    }
    // With these options, the CLI does not wait for the end of the outage.
    proxy.refuse_connections(true);
    let (status, reported) =
        outcome(&mut run(&url, &["a", "--limit", "1", "--no-wait", "--", "true"]));
    assert!(status == 69 && reported.lines().count() == 1, "{reported}");
    let arguments = ["a", "--limit", "1", "--timeout", "500ms", "--", "true"];
    let (status, reported) = outcome(&mut run(&url, &arguments));
    assert_eq!(status, 69, "{reported}");
}

/// The server accepts the connection of the CLI, and ends before it replies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_server_ends_while_the_run_connects_waits_for_the_server() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let url = format!("redis://127.0.0.1:{}/", proxy.port());
    proxy.replies(Flow::Swallow);
    let name = unique_name();
    let mut tool = Tool::start(&mut run(&url, &[&name, "--limit", "1", "--", "echo", "ran"]));
    eventually("a connection", || (proxy.accepted() > 0).then_some(()));
    proxy.refuse_connections(true);
    proxy.cut_all();
    tool.reports("; retrying");
    proxy.replies(Flow::Pass);
    proxy.refuse_connections(false);
    assert_eq!((tool.ended().code(), &*tool.line()), (Some(0), "ran"));
    assert_reported_once(&tool.errors(), &name);
}

/// The subscription finds the reason before the next heartbeat, which would find it, too.
#[test]
fn the_end_of_a_wait_names_the_newest_reason_of_an_outage() {
    eventually("an outage before the end of the wait", || {
        let mut server = Server::start();
        let (_holder, mut waiting) = two(&server, &unique_name(), &["--timeout", "4s"]);
        server.kill();
        // On a busy machine, the wait may end before the outage.
        let is_outage = waiting.ended().code() == Some(69);
        let reported = waiting.errors();
        let end = reported.lines().find(|line| line.contains("no permit within"));
        is_outage.then(|| {
            assert!(end.is_some_and(|end| end.contains("nothing listens there")), "{reported}");
        })
    });
}

/// A run waits while the memory is full or the last save has failed. The report names the state.
#[test]
fn a_run_waits_until_the_server_accepts_writes() {
    let (memory, saves) = ("CONFIG SET maxmemory", "CONFIG SET stop-writes-on-bgsave-error");
    for (code, begin, end) in [
        ("OOM", format!("{memory} 1"), format!("{memory} 0")),
        ("MISCONF", format!("{saves} yes"), format!("{saves} no")),
    ] {
        let server = Server::start();
        if code == "MISCONF" {
            server.fail_to_save();
        }
        server.run(&begin);
        let name = unique_name();
        let mut tool = start(&server, &[&name, "--limit", "1", "--", "echo", "ran"]);
        tool.reports("; retrying");
        server.run(&end);
        assert_eq!((tool.ended().code(), &*tool.line()), (Some(0), "ran"));
        let reported = tool.errors();
        assert!(reported.contains(code), "{reported}");
        assert_reported_once(&reported, &name);
    }
}

/// If the CLI gave up, the permit would stay taken until its lease expires.
#[test]
fn a_release_that_fails_with_noreplicas_is_retried() {
    let server = Server::start();
    let name = unique_name();
    let script = "echo on; while [ ! -e $0 ]; do sleep 0.01; done";
    let file = std::env::temp_dir().join(unique_name());
    let command = [&*name, "--limit", "1", "--", "sh", "-c", script, file.to_str().unwrap()];
    let mut tool = start(&server, &command);
    assert_eq!(tool.line(), "on");
    server.run("CONFIG SET min-replicas-to-write 1");
    std::fs::write(&file, "").unwrap();
    // The number of rejected attempts shows that the CLI has reported the outage and still retries.
    let refusals = || {
        let info: String =
            redis::cmd("INFO").arg("errorstats").query(&mut server.connect()).unwrap();
        let count = info.lines().find_map(|line| line.strip_prefix("errorstat_NOREPLICAS:count="));
        count.and_then(|count| count.trim().parse::<u32>().ok()).filter(|count| *count > 40)
    };
    eventually("refusals", refusals);
    server.run("CONFIG SET min-replicas-to-write 0");
    assert_eq!(tool.ended().code(), Some(0));
    assert!(tool.errors().contains("the release is retried"));
    await_held_and_queued(&server.url, &name, (0, 0));
    std::fs::remove_file(file).unwrap();
}

/// A supervisor sends SIGKILL if a process still runs some seconds after SIGTERM.
#[test]
fn a_signal_that_ends_the_command_also_limits_the_release_in_an_outage() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let server = Server::start();
        let command = [&*unique_name(), "--limit", "1", "--lease", "1h", "--", "sh", "-c"];
        let script = "trap 'exit 3' INT TERM; echo on; while :; do sleep 0.02; done";
        let mut tool = start(&server, &[&command[..], &[script]].concat());
        assert_eq!(tool.line(), "on");
        server.signal(Signal::SIGSTOP);
        tool.signal(signal);
        assert_eq!(tool.ended().code(), Some(3));
        let reported = tool.errors();
        assert!(
            reported.contains("the permit may stay taken until its lease expires"),
            "{reported}"
        );
    }
}

#[test]
fn a_waiting_run_reports_the_start_and_the_end_of_an_outage() {
    let mut server = Server::start();
    let name = unique_name();
    let (_holder, mut waiter) = two(&server, &name, &["--limit", "1"]);
    server.kill();
    // The server starts again only after the CLI has reported the outage, because the CLI does not
    // report a shorter outage.
    waiter.reports("; retrying");
    // The server is empty, so no permit is held.
    server.start_again();
    assert_eq!((waiter.ended().code(), &*waiter.line()), (Some(0), "ran"));
    assert_reported_once(&waiter.errors(), &name);
}

/// Another server than the failed server ends the outage. A later outage is a new outage.
#[test]
fn a_failover_is_reported_as_the_end_of_an_outage() {
    let mut pair = Pair::start();
    let (url, name) = (pair.urls().join(","), unique_name());
    let request = [&*name, "--limit", "1", "--"];
    let holds = [&request[..], &["sh", "-c", "echo on; sleep 600"]].concat();
    let holder = Tool::start(&mut run(&url, &holds));
    assert_eq!(holder.line(), "on");
    let mut waiter = Tool::start(&mut run(&url, &[&request[..], &["true"]].concat()));
    await_held_and_queued(&pair.urls()[0], &name, (1, 1));
    pair.is_in_step();
    pair.servers[0].kill();
    waiter.reports("; retrying");
    pair.promote(1);
    waiter.reports("Redis is available again");
    pair.servers[1].kill();
    waiter.reports_times("; retrying", 2);
    waiter.signal(Signal::SIGTERM);
    assert_eq!(waiter.ended().signal(), Some(Signal::SIGTERM as i32));
    let reported = waiter.errors();
    let lines =
        ["; retrying", "Redis is available again"].map(|text| reported.matches(text).count());
    assert_eq!(lines, [2, 1], "{reported}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_in_a_cluster_is_reported_as_the_end_of_an_outage() {
    let Some(mut cluster) = Cluster::start(3, true).await else { return };
    let (url, name) = (cluster.urls().join(","), cluster.name_at(0));
    let request = ["--cluster", &*name, "--limit", "1", "--"];
    let holds = [&request[..], &["sh", "-c", "echo on; sleep 600"]].concat();
    let holder = Tool::start(&mut run(&url, &holds));
    assert_eq!(holder.line(), "on");
    cluster.is_in_step(0, 3);
    cluster.nodes[0].kill();
    holder.reports("; retrying");
    cluster.sees_promoted(3);
    holder.reports("Redis is available again");
}

#[test]
fn the_acquire_timeout_ends_the_wait_while_redis_is_silent() {
    let server = Server::start();
    let timeout = [&PATIENT[..], &["--timeout", "10s"]].concat();
    let (_holder, mut waiter) = two(&server, &unique_name(), &timeout);
    server.signal(Signal::SIGSTOP);
    let (status, reported) = (waiter.ended().code(), waiter.errors());
    assert_eq!(status, Some(75), "{reported}");
    let lines: Vec<&str> = reported.lines().collect();
    assert!(lines[0].contains("no permit within "), "{reported}");
    assert!(lines[1].contains("within 1s: the request leaves the queue"), "{reported}");
    // The CLI does not know whether its request was granted.
    assert!(lines[1].contains("a permit that was just granted may stay taken"), "{reported}");
}

/// The status is not 75, because 75 would mean that all permits are held.
#[test]
fn an_acquire_timeout_in_an_outage_exits_with_69() {
    let mut server = Server::start();
    let (_holder, mut waiter) = two(&server, &unique_name(), &["--limit", "1", "--timeout", "10s"]);
    server.kill();
    assert_eq!(waiter.ended().code(), Some(69));
    let reported = waiter.errors();
    let reasons = ["nothing listens there", "the connection was lost"];
    let names_one = |line: &str| reasons.iter().any(|reason| line.contains(reason));
    assert!(
        reported.lines().any(|line| line.contains(" is unavailable: ") && names_one(line)),
        "{reported}"
    );
    assert!(
        reported.contains("no permit within 10 s (last queue position: 1), and Redis at "),
        "{reported}"
    );
}

#[test]
fn the_end_of_a_wait_is_not_reported_as_the_end_of_the_outage() {
    let mut server = Server::start();
    let (_holder, mut waiter) = two(&server, &unique_name(), &["--limit", "1"]);
    server.kill();
    waiter.reports("; retrying");
    waiter.signal(Signal::SIGTERM);
    assert_eq!(waiter.ended().signal(), Some(Signal::SIGTERM as i32));
    let reported = waiter.errors();
    assert!(!reported.contains("available again"), "{reported}");
    assert_eq!(reported.matches("; retrying").count(), 1, "{reported}");
}

/// Earlier replies do not matter. Only a reply to the request itself means that all permits are
/// held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_timeout_without_a_reply_to_the_request_exits_with_69() {
    let (server, name) = (Server::start(), unique_name());
    let holder = start(&server, &[&name, "--limit", "1", "--", "sh", "-c", "echo on; sleep 600"]);
    assert_eq!(holder.line(), "on");
    let patience = [&[&*name], &PATIENT[..], &["--timeout", "10s", "--", "true"]].concat();
    // With `--limit`, the CLI first reads the limits. Both calls must end with `--timeout`, and not
    // with the response timeout.
    for script in ["inspect", "acquire"] {
        let proxy = Proxy::start(server.port).await;
        let url = format!("redis://127.0.0.1:{}/", proxy.port());
        proxy.lose_replies_from(ScriptRegistry::embedded().script(script).unwrap().sha1());
        let (status, reported) = outcome(&mut run(&url, &patience));
        assert_eq!(status, 69, "{script}: {reported}");
        assert!(reported.contains("no queue position is known"), "{script}: {reported}");
    }
}

#[test]
fn a_signal_ends_the_wait_while_redis_is_silent() {
    let server = Server::start();
    let (_holder, mut waiter) = two(&server, &unique_name(), &PATIENT);
    server.signal(Signal::SIGSTOP);
    waiter.signal(Signal::SIGTERM);
    assert_eq!(waiter.ended().signal(), Some(Signal::SIGTERM as i32));
    assert!(waiter.errors().contains("the request leaves the queue"));
}

#[test]
fn the_cli_does_not_try_to_release_a_lost_permit() {
    let server = Server::start();
    let name = unique_name();
    let options = [&PATIENT[..], &["--lease", "3s", "--", "sh", "-c", "echo on; exec sleep 600"]];
    let mut tool = start(&server, &[&[&*name], &options.concat()[..]].concat());
    assert_eq!(tool.line(), "on");
    let mut connection = connect(&server.url);
    let first = lease_end(&mut connection, &name);
    let is_refreshed = || (lease_end(&mut connection, &name) != first).then_some(());
    eventually("a refresh", is_refreshed);
    server.signal(Signal::SIGSTOP);
    assert_eq!(tool.ended().code(), Some(70), "{}", tool.errors());
}

#[test]
fn a_signal_ends_the_release_while_redis_is_silent() {
    let server = Server::start();
    let file = std::env::temp_dir().join(unique_name());
    let script = "trap '' TERM; echo on; while [ ! -e $0 ]; do sleep 0.01; done; exit 3";
    let command = ["a", "--", "sh", "-c", script, file.to_str().unwrap()];
    let mut tool = start(&server, &[&PATIENT[..], &command].concat());
    assert_eq!(tool.line(), "on");
    server.signal(Signal::SIGSTOP);
    std::fs::write(&file, "").unwrap();
    // The status is the command's, because the command has ended normally.
    assert_eq!(tool.ended_by(Signal::SIGTERM).code(), Some(3));
    let reported = tool.errors();
    assert!(reported.contains("the permit may stay taken until its lease expires"), "{reported}");
    std::fs::remove_file(file).unwrap();
}
