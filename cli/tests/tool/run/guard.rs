//! Tests the guard, which ends the command if the CLI was killed or stopped.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::support::server::{await_held_and_queued, connect, lease_end, now, shared_url};
use super::support::tool::{Tool, children, is_alive, run, state};
use crate::support::process::catches;
use crate::support::{eventually, unique_name};

/// A command that prints its process ID, the ID of its child, and a line for each SIGWINCH.
const FAMILY: &str = "trap 'echo heard' WINCH; echo $$; sleep 600 & echo $!; \
                      while :; do wait; done";
const STUBBORN: &str = "trap '' TERM; trap 'echo heard' WINCH; echo $$; sleep 600 & echo $!; \
                        while :; do sleep 0.01; done";

/// Reads the process ID of the CLI. The parent of a command is the guard, and the parent of the
/// guard is the CLI.
const TO_TOOL: &str = "read _ _ _ tool _ < /proc/$PPID/stat";

fn start(name: &str, lease: &str, script: &str) -> Tool {
    let head = ["--limit", "1", "--lease", lease, "--grace", "500ms", "--", "sh", "-c", script];
    Tool::start(&mut run(&shared_url(), &[&[name], &head[..]].concat()))
}

fn family(tool: &Tool) -> [i32; 2] {
    let family = [tool.line().parse().unwrap(), tool.line().parse().unwrap()];
    await_watch(tool);
    family
}

/// Waits until the guard knows the command. The CLI forwards signals only after that.
fn await_watch(tool: &Tool) {
    tool.signal(Signal::SIGWINCH);
    assert_eq!(tool.line(), "heard");
}

fn guard_of(tool: &Tool, command: i32) -> i32 {
    children(tool.id()).into_iter().find(|process| *process != command).unwrap()
}

#[test]
fn killing_the_cli_ends_the_command_its_children_and_the_guard() {
    for script in [FAMILY, STUBBORN] {
        let name = unique_name();
        let mut tool = start(&name, "30s", script);
        let family = family(&tool);
        let guards = children(tool.id());
        tool.signal(Signal::SIGKILL);
        tool.silent();
        for process in family.into_iter().chain(guards) {
            eventually("the end of all", || (!is_alive(process)).then_some(()));
        }
        tool.ended();
        // No process was left that could release the permit.
        await_held_and_queued(&shared_url(), &name, (1, 0));
    }
}

#[test]
fn the_command_is_ended_before_its_lease_expires_if_the_cli_is_stopped() {
    let (url, name) = (shared_url(), unique_name());
    let mut tool = start(&name, "15s", STUBBORN);
    let family = family(&tool);
    let end = lease_end(&mut connect(&url), &name);
    tool.signal(Signal::SIGSTOP);
    for process in family {
        eventually("the end of the command", || (!is_alive(process)).then_some(()));
    }
    let ended = now();
    assert!(ended < end, "it ended {} ms after its lease", ended - end);
    tool.signal(Signal::SIGCONT);
    assert_eq!(tool.ended().code(), Some(70));
}

/// Until the CLI continues the prepared process, that process is killed with its guard.
#[test]
fn a_command_is_prepared_again_if_the_guard_is_killed_before_the_command_begins() {
    let mut tool = with_its_guard_killed(|_| ());
    assert_eq!(tool.ended().code(), Some(5), "{}", tool.errors());
    assert_eq!(tool.line(), "on");
}

#[test]
fn a_command_that_is_to_end_is_not_prepared_again() {
    let mut tool = with_its_guard_killed(|tool| tool.signal(Signal::SIGTERM));
    assert_eq!(tool.ended().code(), Some(128 + 15), "{}", tool.errors());
}

/// Starts a tool whose guard is killed before the command begins. Calls `meanwhile` before the tool
/// notices that.
fn with_its_guard_killed(meanwhile: impl Fn(&Tool)) -> Tool {
    eventually("a prepared process", || {
        let tool = start(&unique_name(), "30s", "echo on; exit 5");
        // If this test is too slow, the command may have begun or ended. The test is then repeated.
        let child_of = |parent| {
            let found = || Some(children(parent).first().copied());
            let id = tool.id();
            eventually("a child", || found().filter(|child| child.is_some() || !is_alive(id)))
        };
        let guard = child_of(tool.id())?;
        let prepared = child_of(guard)?;
        tool.signal(Signal::SIGSTOP);
        let settled = || state(prepared).is_none_or(|state| "TZX".contains(state)).then_some(());
        eventually("a stopped or ended process", settled);
        let is_prepared = state(prepared) == Some('T');
        if is_prepared {
            eventually("the report of the guard", || (state(guard) == Some('S')).then_some(()));
            kill(Pid::from_raw(guard), Signal::SIGKILL).unwrap();
            meanwhile(&tool);
        }
        tool.signal(Signal::SIGCONT);
        is_prepared.then_some(tool)
    })
}

#[test]
fn the_cli_waits_for_the_end_of_its_guard() {
    let name = unique_name();
    let mut tool = start(&name, "30s", FAMILY);
    let command = family(&tool)[0];
    let guard = guard_of(&tool, command);
    assert!(is_alive(guard));
    tool.signal(Signal::SIGTERM);
    assert_eq!(tool.ended().code(), Some(128 + 15));
    // The CLI leaves no zombie.
    assert_eq!(state(guard), None);
}

/// A signal to all processes named like the CLI must not end the guard.
#[test]
fn the_guard_survives_signals_and_still_ends_the_command() {
    let name = unique_name();
    let mut tool = start(&name, "30s", FAMILY);
    let [command, child] = family(&tool);
    let guard = guard_of(&tool, command);
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        eventually("a guard that listens", || catches(guard, signal).then_some(()));
        kill(Pid::from_raw(guard), signal).unwrap();
    }
    tool.signal(Signal::SIGKILL);
    for process in [command, child, guard] {
        eventually("the end of all", || (!is_alive(process)).then_some(()));
    }
    tool.ended();
}

#[test]
fn a_guard_that_is_killed_is_replaced() {
    let mut tool = start(&unique_name(), "30s", FAMILY);
    let [command, child] = family(&tool);
    let first = guard_of(&tool, command);
    kill(Pid::from_raw(first), Signal::SIGKILL).unwrap();
    let another = || {
        let guards: Vec<_> = children(tool.id()).into_iter().filter(|id| *id != command).collect();
        let [guard] = *guards else { return None };
        // The guard does not have the name of the CLI.
        let name = std::fs::read_to_string(format!("/proc/{guard}/comm")).ok()?;
        let is_ready = name == "semaphore-guard\n" && catches(guard, Signal::SIGTERM);
        (guard != first && is_ready).then_some(guard)
    };
    let another = eventually("another guard", another);
    await_watch(&tool);
    tool.signal(Signal::SIGKILL);
    for process in [command, child, another] {
        eventually("the end of all", || (!is_alive(process)).then_some(()));
    }
    tool.ended();
}

#[test]
fn a_guard_killed_during_the_wait_is_replaced_before_the_command_starts() {
    let starts = || {
        let name = unique_name();
        let mut holder = start(&name, "30s", FAMILY);
        family(&holder);
        let mut waiting =
            start(&name, "2s", &format!("echo $$; {TO_TOOL}; kill -KILL $tool; exec sleep 600"));
        await_held_and_queued(&shared_url(), &name, (1, 1));
        let [guard] = *children(waiting.id()) else { panic!("not one guard") };
        kill(Pid::from_raw(guard), Signal::SIGKILL).unwrap();
        // The guard disappears when the CLI has reaped it.
        eventually("its end", || state(guard).is_none().then_some(()));
        holder.signal(Signal::SIGTERM);
        let command = waiting.line().parse().unwrap();
        eventually("the end of the command", || (!is_alive(command)).then_some(()));
        waiting.ended();
        holder.ended();
    };
    std::thread::scope(|scope| (0..5).for_each(|_| drop(scope.spawn(starts))));
}

/// The guard is killed while the CLI ends the command. The CLI is then stopped, so a new guard must
/// end the command.
#[test]
fn a_new_guard_kills_a_command_that_is_already_being_ended() {
    let (url, name) = (shared_url(), unique_name());
    let script =
        "trap 'echo ends' TERM; trap 'echo heard' WINCH; echo $$; while :; do sleep 0.01; done";
    let arguments =
        [&*name, "--limit", "1", "--lease", "9s", "--grace", "3s", "--", "sh", "-c", script];
    let mut tool = Tool::start(&mut run(&url, &arguments));
    let command = tool.line().parse().unwrap();
    let first = guard_of(&tool, command);
    redis::cmd("DEL").arg(format!("sem:{{{name}}}:permits")).exec(&mut connect(&url)).unwrap();
    assert_eq!(tool.line(), "ends");
    kill(Pid::from_raw(first), Signal::SIGKILL).unwrap();
    eventually("another guard", || {
        children(tool.id()).iter().all(|child| *child != first).then_some(())
    });
    await_watch(&tool);
    tool.signal(Signal::SIGSTOP);
    eventually("the end of the command", || (!is_alive(command)).then_some(()));
    tool.signal(Signal::SIGCONT);
    assert_eq!(tool.ended().code(), Some(70));
}

/// A command without a terminal may be stopped and continued by any process.
#[test]
fn a_command_that_is_stopped_for_longer_than_a_lease_keeps_its_permit() {
    let (url, name) = (shared_url(), unique_name());
    let mut tool = start(&name, "6s", FAMILY);
    let [command, child] = family(&tool);
    let mut redis = connect(&url);
    let start = lease_end(&mut redis, &name);
    kill(Pid::from_raw(command), Signal::SIGSTOP).unwrap();
    eventually("a lease", || (lease_end(&mut redis, &name) > start + 6_000).then_some(()));
    kill(Pid::from_raw(command), Signal::SIGCONT).unwrap();
    tool.signal(Signal::SIGWINCH);
    assert_eq!(tool.line(), "heard");
    assert_eq!(state(child), Some('S'));
    tool.signal(Signal::SIGTERM);
    assert_eq!(tool.ended().code(), Some(128 + 15));
}

/// Each signal is forwarded, and none delays a check of the permit.
#[test]
fn frequent_signals_neither_end_the_command_nor_prevent_refreshes() {
    let (url, name) = (shared_url(), unique_name());
    let mut tool = start(&name, "6s", &format!("trap '' USR1; {FAMILY}"));
    let [command, _] = family(&tool);
    let mut redis = connect(&url);
    let start = lease_end(&mut redis, &name);
    eventually("two leases", || {
        tool.signal(Signal::SIGUSR1);
        (lease_end(&mut redis, &name) > start + 12_000).then_some(())
    });
    assert!(is_alive(command));
    tool.signal(Signal::SIGTERM);
    assert_eq!(tool.ended().code(), Some(128 + 15));
}

/// The guard knows the command before the command begins.
#[test]
fn a_command_that_immediately_kills_or_stops_the_cli_is_ended() {
    for signal in ["KILL", "STOP"] {
        let starts = || {
            let mut tool = start(
                &unique_name(),
                "2s",
                &format!("echo $$; {TO_TOOL}; kill -{signal} $tool; exec sleep 600"),
            );
            let command: i32 = tool.line().parse().unwrap();
            eventually("the end of the command", || (!is_alive(command)).then_some(()));
            tool.signal(Signal::SIGCONT);
            tool.ended();
        };
        std::thread::scope(|scope| (0..5).for_each(|_| drop(scope.spawn(starts))));
    }
}
