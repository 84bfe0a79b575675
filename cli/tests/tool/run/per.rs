//! `--per` limits the number of starts, and not the number of running commands.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use nix::sys::signal::Signal;
use test_support::delay::Delay;
use test_support::proxy::Proxy;

use super::support::server::{await_held_and_queued, connect, shared_url};
use super::support::tool::{Tool, children, is_alive, outcome, run, state};
use crate::support::server::Server;
use crate::support::{eventually, unique_name};

/// Returns arguments of a run with a limit of 2.
fn arguments<'a>(name: &'a str, lease: &'a str, rest: &[&'a str]) -> Vec<&'a str> {
    [&[name, "--limit", "2", "--per", lease], rest].concat()
}

#[test]
fn with_per_at_most_as_many_commands_as_the_limit_start_in_a_lease() {
    let (url, name) = (shared_url(), unique_name());
    let attempt = || {
        outcome(&mut run(&url, &arguments(&name, "1h", &["--no-wait", "--", "sh", "-c", "exit 3"])))
    };
    assert_eq!([attempt(), attempt()], [(3, String::new()), (3, String::new())]);
    assert_eq!(attempt().0, 75);
    await_held_and_queued(&url, &name, (2, 0));
}

/// Each command prints its token, which is the time of the grant by the server's clock in µs.
#[test]
fn with_per_and_limit_2_at_most_2_waiting_commands_start_per_lease() {
    let (url, name) = (shared_url(), unique_name());
    let print = ["--", "sh", "-c", "echo $REDIS_SEMAPHORE_TOKEN"];
    let tools: Vec<_> =
        (0..7).map(|_| Tool::start(&mut run(&url, &arguments(&name, "500ms", &print)))).collect();
    let mut granted: Vec<u64> = tools.iter().map(|tool| tool.line().parse().unwrap()).collect();
    granted.sort_unstable();
    for three in granted.windows(3) {
        let span = three[2] - three[0];
        assert!(span >= 499_000, "three commands started within {span} µs");
    }
}

#[test]
fn with_per_a_command_that_cannot_be_started_releases_its_permit() {
    let (url, name) = (shared_url(), unique_name());
    for (command, status) in [("/no/such/command", 127), ("/etc/passwd", 126)] {
        assert_eq!(outcome(&mut run(&url, &arguments(&name, "1h", &["--", command]))).0, status);
        await_held_and_queued(&url, &name, (0, 0));
    }
}

#[test]
fn a_script_without_a_shebang_fails_with_advice() {
    let (url, name) = (shared_url(), unique_name());
    let script = std::env::temp_dir().join(&name);
    std::fs::write(&script, "exit 0").unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let command = ["--", script.to_str().unwrap()];
    let (status, reported) = outcome(&mut run(&url, &arguments(&name, "1h", &command)));
    std::fs::remove_file(script).unwrap();
    assert!(status == 126 && reported.contains("begin a script with #!"), "{reported}");
}

#[test]
fn a_wait_ended_by_a_signal_takes_no_permit() {
    let (url, name) = (shared_url(), unique_name());
    let attempt = || outcome(&mut run(&url, &arguments(&name, "1h", &["--", "true"])));
    assert_eq!([attempt().0, attempt().0], [0, 0]);
    let mut waiting = Tool::start(&mut run(&url, &arguments(&name, "1h", &["--", "true"])));
    await_held_and_queued(&url, &name, (2, 1));
    waiting.signal(Signal::SIGTERM);
    assert_eq!(waiting.ended().signal(), Some(Signal::SIGTERM as i32));
    await_held_and_queued(&url, &name, (2, 0));
}

#[test]
fn with_per_the_started_command_needs_no_server_and_no_guard() {
    let server = Server::start();
    let script = "trap 'exit 4' USR1; echo $$; while :; do sleep 0.01; done";
    let loops = ["--", "sh", "-c", script];
    let tools = [(); 2].map(|()| Tool::start(&mut run(&server.url, &arguments("a", "1s", &loops))));
    let commands = tools.each_ref().map(|tool| tool.line().parse().unwrap());
    let mut connection = connect(&server.url);
    eventually("the end of all connections", || {
        let clients: String = redis::cmd("CLIENT").arg("LIST").query(&mut connection).unwrap();
        (clients.lines().count() == 1).then_some(())
    });
    drop(server);
    assert_eq!(tools.each_ref().map(|tool| children(tool.id())), commands.map(|one| vec![one]));

    let [mut killed, mut reported] = tools;
    killed.signal(Signal::SIGKILL);
    killed.ended();
    assert!(is_alive(commands[0]));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(commands[0]), Signal::SIGKILL).unwrap();
    // Signals are forwarded as usual.
    reported.signal(Signal::SIGUSR1);
    assert_eq!(reported.ended().code(), Some(4));
    let errors = reported.errors();
    assert!(!errors.contains("redis-semaphore"), "{errors}");
}

#[test]
fn a_per_option_outside_the_bounds_of_a_lease_is_rejected() {
    for lease in ["1ms", "8days"] {
        let (status, reported) =
            outcome(&mut run(&shared_url(), &arguments("a", lease, &["--", "true"])));
        assert_eq!(status, 2, "{reported}");
        assert!(reported.contains("--per: must be"), "{reported}");
    }
}

/// Replies arrive after the end of each lease, so the advice names the option that sets the lease.
#[test]
fn an_error_about_a_short_lease_names_the_option_per() {
    let server = Server::start();
    let proxy = Proxy::start_with_delay(server.port, Delay::of(Duration::from_millis(100)));
    let url = format!("redis://127.0.0.1:{}/", proxy.port());
    let (status, reported) = outcome(&mut run(&url, &arguments("a", "20ms", &["--", "true"])));
    assert_eq!(status, 69, "{reported}");
    assert!(reported.contains("use a longer --per"), "{reported}");
}

#[test]
fn the_options_per_and_grace_exclude_each_other() {
    let (status, reported) =
        outcome(&mut run("", &arguments("a", "1s", &["--grace", "1s", "--", "true"])));
    assert_eq!(status, 2);
    assert!(reported.contains("--per") && reported.contains("--grace"), "{reported}");
}

/// Waits for a heartbeat. A CLI that sends heartbeats knows that its request is queued.
fn await_heartbeat(url: &str) {
    let mut connection = connect(url);
    let mut last_received = || -> Vec<(String, f64)> {
        let mut last = redis::cmd("ZRANGE");
        last.arg(&["sem:{a}:clients", "-1", "-1", "WITHSCORES"]).query(&mut connection).unwrap()
    };
    let first = last_received();
    eventually("a heartbeat", || (last_received() != first).then_some(()));
}

/// Grants a permit to a suspended CLI, suspends the server, continues the CLI, and returns how the
/// CLI ends.
fn outcome_in_an_outage(command: &[&str]) -> (Option<i32>, String) {
    let (_server, mut tool) = start_in_an_outage("1h", "500ms", command);
    (tool.ended().code(), tool.errors())
}

fn start_in_an_outage(lease: &str, response_timeout: &str, command: &[&str]) -> (Server, Tool) {
    let server = Server::start();
    let sleep = ["a", "--limit", "1", "--", "sh", "-c", "echo on; sleep 600"];
    let mut holder = Tool::start(&mut run(&server.url, &sleep));
    assert_eq!(holder.line(), "on");
    let head = ["a", "--per", lease, "--response-timeout", response_timeout, "--"];
    let waiting = Tool::start(&mut run(&server.url, &[&head, command].concat()));
    await_held_and_queued(&server.url, "a", (1, 1));
    await_heartbeat(&server.url);
    waiting.signal(Signal::SIGSTOP);
    eventually("a tool that is stopped", || (state(waiting.id()) == Some('T')).then_some(()));
    holder.signal(Signal::SIGTERM);
    holder.ended();
    await_held_and_queued(&server.url, "a", (1, 0));
    server.signal(Signal::SIGSTOP);
    // The CLI now reads the grant message.
    waiting.signal(Signal::SIGCONT);
    (server, waiting)
}

#[test]
fn a_start_that_cannot_be_counted_in_an_outage_is_reported() {
    let (status, reported) = outcome_in_an_outage(&["sh", "-c", "exit 3"]);
    assert_eq!(status, Some(3), "{reported}");
    assert!(reported.contains("more commands than the limit may start"), "{reported}");
}

#[test]
fn an_unreleased_permit_of_a_failed_start_is_reported() {
    let (_server, mut tool) = start_in_an_outage("10s", "500ms", &["/no/such/command"]);
    let (status, reported) = (tool.ended().code(), tool.errors());
    assert_eq!(status, Some(127), "{reported}");
    assert!(reported.contains("the release is retried until the lease expires"), "{reported}");
    assert!(reported.contains("the release was retried until the lease expired"), "{reported}");
    assert!(reported.contains("a: release ") && !reported.contains("revoke"), "{reported}");
    assert!(reported.contains("/no/such/command"), "{reported}");
}

#[test]
fn a_signal_ends_let_expire_while_redis_is_silent() {
    let script = "trap '' TERM; echo on; exit 3";
    let (_server, mut tool) = start_in_an_outage("1h", "10min", &["sh", "-c", script]);
    assert_eq!(tool.line(), "on");
    assert_eq!(tool.ended_by(Signal::SIGTERM).code(), Some(3));
    let reported = tool.errors();
    assert!(reported.contains("more commands than the limit may start"), "{reported}");
}
