//! Several runs at the same time.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::support::server::{await_held_and_queued, shared_url};
use super::support::tool::{Tool, children, outcome, run, script};
use crate::support::unique_name;

#[test]
fn with_a_limit_of_1_no_two_commands_run_at_once() {
    let (url, name) = (shared_url(), unique_name());
    let folder = std::env::temp_dir().join(&name);
    // The command creates a folder, which only one process at a time can do. If the folder exists,
    // the command prints an error.
    let once = format!("mkdir {0} && sleep 0.01 && rmdir {0}", folder.display());
    let mut tools: Vec<_> = (0..3)
        .map(|_| {
            let turns = format!(
                "for turn in 1 2 3 4 5 6 7 8 9 10; do $TOOL run {name} --limit 1 -- sh -c \
                 '{once}' || exit; done"
            );
            Tool::start(&mut script(&url, &turns))
        })
        .collect();
    for tool in &mut tools {
        let status = tool.ended();
        assert!(status.success(), "{status}: {}", tool.errors());
    }
    assert!(!fs::exists(&folder).unwrap());
}

#[test]
fn a_command_holds_a_permit_of_the_given_weight() {
    let (url, name) = (shared_url(), unique_name());
    let heavy = ["--limit", "3", "--weight", "2", "--", "sh", "-c", "echo on; sleep 600"];
    let holder = Tool::start(&mut run(&url, &[&[&*name], &heavy[..]].concat()));
    assert_eq!(holder.line(), "on");
    let attempt =
        |weight| outcome(&mut run(&url, &[&name, "--weight", weight, "--no-wait", "--", "true"])).0;
    assert_eq!((attempt("1"), attempt("2")), (0, 75));
}

#[test]
fn a_group_at_its_cap_waits_while_another_group_is_granted_a_permit() {
    let (url, name) = (shared_url(), unique_name());
    let group = |group: &str, rest: &[&str]| {
        run(&url, &[&[&*name, "--limit", "3", "--group", group, "--group-cap", "1"], rest].concat())
    };
    let holder = Tool::start(&mut group("a", &["--", "sh", "-c", "echo on; sleep 600"]));
    assert_eq!(holder.line(), "on");
    let (status, errors) = outcome(&mut group("a", &["--no-wait", "--", "true"]));
    assert_eq!(status, 75, "{errors}");
    assert!(errors.contains("the group is at its cap"), "{errors}");
    assert!(errors.contains(&format!("`redis-semaphore inspect {name} --groups`")), "{errors}");
    assert_eq!(outcome(&mut group("b", &["--group-share", "5", "--no-wait", "--", "true"])).0, 0);
    assert_eq!(outcome(&mut run(&url, &[&name, "--no-wait", "--", "true"])).0, 0);
}

#[test]
fn invalid_groups_are_rejected_with_the_option() {
    let (url, name) = (shared_url(), unique_name());
    for (options, reason) in [
        ("--group a:b", "must be 1 to 64 of A-Z"),
        ("--group a --group-share 0", "--group-share"),
        ("--group a --group-share 1001", "from 1 to 1000"),
        ("--group a --weight 2 --group-cap 1", "a cap of at least the weight 2, not 1"),
        ("--group-cap 1", "--group <GROUP>"),
        ("--group-share 1", "--group <GROUP>"),
    ] {
        let options: Vec<&str> = options.split(' ').collect();
        let asked = [&[&*name, "--limit", "3"], &options[..], &["--", "echo", "ran"]].concat();
        let (status, errors) = outcome(&mut run(&url, &asked));
        assert_eq!(status, 2, "{options:?}: {errors}");
        assert!(errors.contains(reason), "{options:?}: {errors}");
    }
}

/// An upgrade replaces the file of a waiting CLI.
#[test]
fn a_waiting_cli_runs_its_command_after_its_executable_was_deleted() {
    let (url, name) = (shared_url(), unique_name());
    let sleep = ["--limit", "1", "--", "sh", "-c", "echo on; sleep 600"];
    let mut holder = Tool::start(&mut run(&url, &[&[&*name], &sleep[..]].concat()));
    assert_eq!(holder.line(), "on");
    let file = std::env::temp_dir().join(&name);
    // The shell copies the file. If this process wrote it, other processes could inherit the open
    // file, which could then not be executed.
    let text = format!("cp $TOOL {0} && exec {0} run {name} -- echo ran", file.display());
    let mut waiting = Tool::start(&mut script(&url, &text));
    await_held_and_queued(&url, &name, (1, 1));
    fs::remove_file(&file).unwrap();
    let [guard] = *children(waiting.id()) else { panic!("not one guard") };
    kill(Pid::from_raw(guard), Signal::SIGKILL).unwrap();
    holder.signal(Signal::SIGTERM);
    let status = waiting.ended();
    assert_eq!((status.code(), waiting.errors()), (Some(0), String::new()));
    assert_eq!(waiting.line(), "ran");
    holder.ended();
}
