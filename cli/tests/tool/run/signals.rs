//! Signals to the CLI.

use std::os::unix::process::ExitStatusExt;

use nix::sys::signal::Signal;

use super::support::server::{await_held_and_queued, shared_url};
use super::support::tool::{Tool, children, run, script, state};
use crate::support::{eventually, unique_name};

#[test]
fn a_signal_during_the_wait_ends_the_cli_and_removes_its_request() {
    let (url, name) = (shared_url(), unique_name());
    let sleep = ["--limit", "1", "--", "sh", "-c", "echo on; sleep 600"];
    let holder = Tool::start(&mut run(&url, &[&[&*name], &sleep[..]].concat()));
    assert_eq!(holder.line(), "on");
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1] {
        let mut waiting = Tool::start(&mut run(&url, &[&name, "--", "echo", "no"]));
        await_held_and_queued(&url, &name, (1, 1));
        // These signals do not end the CLI.
        waiting.signal(Signal::SIGWINCH);
        waiting.signal(Signal::SIGCONT);
        waiting.signal(signal);
        assert_eq!(waiting.ended().signal(), Some(signal as i32));
        await_held_and_queued(&url, &name, (1, 0));
        assert_eq!(waiting.errors(), "");
    }
}

#[test]
fn signals_are_forwarded_to_the_command_and_its_children() {
    let (url, name) = (shared_url(), unique_name());
    let script = "for signal in HUP INT QUIT USR1 USR2 WINCH ALRM CONT TSTP TTIN TTOU ABRT TRAP \
                  IO PROF PWR STKFLT URG VTALRM XCPU; do trap \"echo $signal\" $signal; done; \
                  trap 'echo TERM; exit 3' TERM; sh -c 'trap \"\" HUP USR1 USR2 ALRM ABRT TRAP IO \
                  PROF PWR 16 VTALRM XCPU; trap \"echo child; exit\" TERM; echo on; while :; do \
                  sleep 0.02; done' & echo on; while :; do sleep 0.02; done";
    let mut tool =
        Tool::start(&mut run(&url, &[&name, "--limit", "1", "--", "bash", "-c", script]));
    // The script traps signal 16, because not every `sh` knows its name, SIGSTKFLT. When both
    // processes have printed "on", their handlers are installed.
    assert_eq!([tool.line(), tool.line()], ["on", "on"]);
    for signal in [
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        Signal::SIGWINCH,
        Signal::SIGALRM,
        Signal::SIGCONT,
        // No shell could continue a stopped command. The CLI still forwards these signals.
        Signal::SIGTSTP,
        Signal::SIGTTIN,
        Signal::SIGTTOU,
        Signal::SIGABRT,
        Signal::SIGTRAP,
        Signal::SIGIO,
        Signal::SIGPROF,
        Signal::SIGPWR,
        Signal::SIGSTKFLT,
        Signal::SIGURG,
        Signal::SIGVTALRM,
        Signal::SIGXCPU,
    ] {
        tool.signal(signal);
        // A command that was stopped and continued would print another line.
        assert_eq!(format!("SIG{}", tool.line()), signal.as_str());
    }
    tool.signal(Signal::SIGTERM);
    let mut last = [tool.line(), tool.line()];
    last.sort();
    assert_eq!(last, ["TERM", "child"]);
    assert_eq!(tool.ended().code(), Some(3));
    await_held_and_queued(&url, &name, (0, 0));
}

/// The CLI leads its own session, like a service.
#[test]
fn stop_signals_do_not_stop_a_cli_that_no_shell_can_continue() {
    let (url, name) = (shared_url(), unique_name());
    // The script starts no process: see `terminal.rs`.
    let script = "trap 'echo heard' WINCH; echo on; while :; do :; done";
    let mut tool = Tool::start(&mut run(&url, &[&name, "--limit", "1", "--", "sh", "-c", script]));
    assert_eq!(tool.line(), "on");
    for signal in [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU] {
        tool.signal(signal);
        tool.signal(Signal::SIGWINCH);
        assert_eq!(tool.line(), "heard");
    }
    let mut waiting = Tool::start(&mut run(&url, &[&name, "--", "echo", "ran"]));
    await_held_and_queued(&url, &name, (1, 1));
    for signal in [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU] {
        waiting.signal(signal);
    }
    tool.signal(Signal::SIGTERM);
    tool.ended();
    assert_eq!(waiting.line(), "ran");
    assert!(waiting.ended().success());
}

/// nohup starts programs with SIGHUP ignored.
#[test]
fn the_command_inherits_an_ignored_sighup() {
    let name = unique_name();
    let text = format!(
        "trap '' HUP; exec $TOOL run {name} --limit 1 -- sh -c 'echo on; kill -HUP $$; echo still'"
    );
    let mut tool = Tool::start(&mut script(&shared_url(), &text));
    assert_eq!((tool.line(), tool.line()), ("on".to_owned(), "still".to_owned()));
    assert!(tool.ended().success());
}

/// Some programs block or ignore SIGCHLD, and the processes that they start inherit this setting.
#[test]
fn the_end_of_the_command_is_noticed_with_sigchld_blocked_or_ignored() {
    for option in ["--block-signal=CHLD", "--ignore-signal=CHLD"] {
        let name = unique_name();
        let text = format!("exec env {option} $TOOL run {name} --limit 1 -- sh -c 'exit 3'");
        let mut tool = Tool::start(&mut script(&shared_url(), &text));
        assert_eq!(tool.ended().code(), Some(3), "{option}");
    }
}

#[test]
fn a_signal_that_was_blocked_at_the_start_is_forwarded() {
    let name = unique_name();
    let command = "trap 'exit 3' TERM; echo on; while :; do sleep 0.02; done";
    let text =
        format!("exec env --block-signal=TERM $TOOL run {name} --limit 1 -- sh -c \"{command}\"");
    let mut tool = Tool::start(&mut script(&shared_url(), &text));
    assert_eq!(tool.line(), "on");
    tool.signal(Signal::SIGTERM);
    assert_eq!(tool.ended().code(), Some(3));
}

/// The first process of a container inherits processes whose parents have ended.
#[test]
fn children_that_the_cli_did_not_start_are_reaped() {
    let name = unique_name();
    let text = format!(
        "sh -c 'while [ ! -e {0} ]; do sleep 0.02; done' & exec $TOOL run {name} --limit 1 -- sh \
         -c 'echo on; sleep 600'",
        std::env::temp_dir().join(&name).display()
    );
    let mut tool = Tool::start(&mut script(&shared_url(), &text));
    assert_eq!(tool.line(), "on");
    // The children are the inherited process and the guard.
    let [stranger, ..] = *children(tool.id()) else { panic!("no children") };
    assert_eq!(children(tool.id()).len(), 2);
    std::fs::write(std::env::temp_dir().join(&name), "").unwrap();
    eventually("the end of the other child", || state(stranger).is_none().then_some(()));
    std::fs::remove_file(std::env::temp_dir().join(&name)).unwrap();
    tool.signal(Signal::SIGTERM);
    tool.ended();
}
