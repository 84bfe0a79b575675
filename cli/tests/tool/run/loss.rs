//! Tests of a permit that is lost, or almost lost, while the command runs.

use nix::sys::signal::Signal;

use super::support::server::{connect, lease_end, now, shared_url};
use super::support::tool::{Tool, is_alive, run, script};
use crate::support::server::Server;
use crate::support::{eventually, unique_name};

/// A command that prints its process ID, and ends only with SIGKILL.
const STUBBORN: &str = "trap 'echo TERM' TERM; echo $$; while :; do sleep 0.01; done";
/// A command that cleans up and ends on SIGTERM.
const GENTLE: &str = "trap 'echo cleaned; exit 5' TERM; echo $$; while :; do sleep 0.01; done";

fn arguments<'a>(name: &'a str, lease: &'a str, script: &'a str) -> Vec<&'a str> {
    let head = ["--limit", "1", "--lease", lease, "--grace", "500ms", "--", "sh", "-c", script];
    [&[name], &head[..]].concat()
}

#[test]
fn a_lost_permit_ends_the_command() {
    let (url, name) = (shared_url(), unique_name());
    for (script, last) in [(GENTLE, "cleaned"), (STUBBORN, "TERM")] {
        let mut tool = Tool::start(&mut run(&url, &arguments(&name, "3s", script)));
        let command = tool.line().parse().unwrap();
        let permits = format!("sem:{{{name}}}:permits");
        redis::cmd("DEL").arg(permits).exec(&mut connect(&url)).unwrap();
        while tool.line() != last {}
        eventually("the end of the command", || (!is_alive(command)).then_some(()));
        assert_eq!(tool.ended().code(), Some(70));
        let reported = tool.errors();
        let reason = format!("redis-semaphore: semaphore {name}: the permit was lost (revoked,");
        let is_reported =
            reported.contains(&reason) && reported.contains("): the command is being ended\n");
        assert!(is_reported, "{reported}");
    }
}

#[test]
fn the_reason_is_named_if_refreshes_are_rejected() {
    let server = Server::start();
    let script = "echo on; exec sleep 600";
    let mut tool = Tool::start(&mut run(&server.url, &arguments(&unique_name(), "3s", script)));
    assert_eq!(tool.line(), "on");
    server.run("ACL SETUSER default -zadd");
    assert_eq!(tool.ended().code(), Some(70));
    let reported = tool.errors();
    let reason = "the permit was not refreshed in time (refresh was rejected (127.0.0.1:";
    assert!(reported.contains(reason) && reported.contains("lacks a right"), "{reported}");
}

/// Waits for a refresh and returns the new expiry. The next refresh begins a third of the lease
/// later.
fn just_refreshed(url: &str, name: &str) -> u128 {
    let mut connection = connect(url);
    let first = lease_end(&mut connection, name);
    eventually("a refresh", || Some(lease_end(&mut connection, name)).filter(|end| *end != first))
}

fn ends_before_its_lease(script: &str, break_server: impl FnOnce(&Server)) {
    let server = Server::start();
    let name = unique_name();
    // The lease is so long that even on a busy machine, SIGKILL is sent a whole second before the
    // lease expires.
    let mut tool = Tool::start(&mut run(&server.url, &arguments(&name, "15s", script)));
    let command = tool.line().parse().unwrap();
    let end = just_refreshed(&server.url, &name);
    break_server(&server);
    eventually("the end of the command", || (!is_alive(command)).then_some(()));
    let ended = now();
    assert!(ended < end, "it ended {} ms after its lease", ended - end);
    // The CLI does not end the command immediately, because refreshes may fail for a while. If the
    // reply to the last refresh was lost, the command ends a third of a lease earlier.
    assert!(end - ended < 12_500, "it ended {} ms before its lease", end - ended);
    assert_eq!(tool.ended().code(), Some(70));
    let reported = tool.errors();
    let outage = format!("redis-semaphore: semaphore {name}: Redis at 127.0.0.1:");
    assert!(reported.starts_with(&outage) && reported.contains(" is unavailable: "), "{reported}");
    assert!(reported.contains("the permit was not refreshed in time"), "{reported}");
}

#[test]
fn if_redis_is_silent_sigkill_ends_the_command_before_its_lease_expires() {
    ends_before_its_lease(STUBBORN, |server| server.signal(Signal::SIGSTOP));
}

#[test]
fn if_redis_is_down_the_command_ends_before_its_lease_expires() {
    ends_before_its_lease(GENTLE, |server| server.signal(Signal::SIGKILL));
}

#[test]
fn an_outage_shorter_than_the_lease_does_not_affect_the_command() {
    let server = Server::start();
    let name = unique_name();
    let file = std::env::temp_dir().join(&name);
    let text = format!(
        "RUST_LOG=redis_semaphore=warn exec $TOOL run {name} --limit 1 --lease 9s --grace 100ms \
         --response-timeout 500ms -- sh -c 'echo on; while [ ! -e {} ]; do sleep 0.01; done; exit \
         4' 2>&1",
        file.display()
    );
    let mut tool = Tool::start(&mut script(&server.url, &text));
    assert_eq!(tool.line(), "on");
    just_refreshed(&server.url, &name);
    server.signal(Signal::SIGSTOP);
    while !tool.line().contains("refreshing failed") {}
    server.signal(Signal::SIGCONT);
    just_refreshed(&server.url, &name);
    std::fs::write(&file, "").unwrap();
    assert_eq!(tool.ended().code(), Some(4));
    std::fs::remove_file(file).unwrap();
}
