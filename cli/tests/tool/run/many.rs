//! Tests that many runs leave the same keys, connections and processes as before.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use nix::sys::signal::Signal;
use redis::Connection;

use super::support::server::connect;
use super::support::tool::{Tool, run};
use crate::support::eventually;
use crate::support::server::Server;

/// REDIS_SEMAPHORE_RUNS sets the number of runs, for example to thousands.
fn runs() -> u32 {
    std::env::var("REDIS_SEMAPHORE_RUNS").map_or(300, |runs| runs.parse().unwrap())
}

/// An unusual grace period, by which this test recognizes its guards.
const GRACE: &str = "4s 711ms";

/// Returns the number of processes of this test: CLIs, commands and guards.
fn processes(url: &str) -> usize {
    let ours = [format!("REDIS_URL={url}"), format!("REDIS_SEMAPHORE_ROLE=guard {GRACE}")];
    let is_ours = |process: &Path| {
        let variables = fs::read(process.join("environ")).unwrap_or_default();
        variables.split(|byte| *byte == 0).any(|one| ours.iter().any(|our| our.as_bytes() == one))
    };
    fs::read_dir("/proc").unwrap().flatten().filter(|entry| is_ours(&entry.path())).count()
}

/// Returns the keys, and how many members two of them have.
fn keys(connection: &mut Connection) -> (Vec<String>, u64, u64) {
    let mut keys: Vec<String> = redis::cmd("KEYS").arg("*").query(connection).unwrap();
    keys.sort();
    let mut both = redis::pipe();
    both.cmd("ZCARD").arg("sem:{jobs}:permits").cmd("ZCARD").arg("sem:{jobs}:clients");
    let (permits, clients) = both.query(connection).unwrap();
    (keys, permits, clients)
}

/// Two runs are active at a time, and a signal ends one of them.
#[test]
fn many_runs_add_no_keys_connections_or_processes() {
    let server = Server::start();
    let mut connection = connect(&server.url);
    let tool = |command: &[&str]| {
        let options = ["jobs", "--limit", "3", "--grace", GRACE, "--"];
        run(&server.url, &[&options, command].concat())
    };
    let once = || {
        let status = tool(&["true"]).status().unwrap();
        assert!(status.success(), "{status}");
    };
    once();
    let before = keys(&mut connection);
    for _ in 0..runs() / 2 {
        let mut other = Tool::start(&mut tool(&["sleep", "600"]));
        once();
        // The command may not have begun yet.
        other.signal(Signal::SIGTERM);
        let ended = other.ended();
        let by_signal = ended.signal() == Some(Signal::SIGTERM as i32);
        assert!(by_signal || ended.code() == Some(128 + Signal::SIGTERM as i32), "{ended}");
    }
    assert_eq!(keys(&mut connection), before);
    eventually("the end of all connections", || {
        let clients: String = redis::cmd("CLIENT").arg("LIST").query(&mut connection).unwrap();
        (clients.lines().count() == 1).then_some(())
    });
    // If a signal has killed a CLI, its guard ends by itself.
    eventually("the end of all processes", || (processes(&server.url) == 0).then_some(()));
}
