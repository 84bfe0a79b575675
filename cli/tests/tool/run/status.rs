//! Tests how the CLI ends: its exit status, and the reason that it prints.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use nix::sys::signal::Signal;
use rustix::io::ioctl_fionbio;
use rustix::process::geteuid;
use test_support::folder::Folder;

use super::support::server::{await_held_and_queued, connect, shared_url};
use super::support::tool::{Tool, outcome, run, script};
use crate::support::process::Process;
use crate::support::tool::TOOL;
use crate::support::{eventually, unique_name};

fn status_of(script: &str) -> Option<i32> {
    let name = unique_name();
    let status =
        run(&shared_url(), &[&name, "--limit", "1", "--", "sh", "-c", script]).status().unwrap();
    await_held_and_queued(&shared_url(), &name, (0, 0));
    status.code()
}

#[test]
fn the_exit_status_of_the_command_is_returned() {
    for status in [0, 1, 7, 69, 255] {
        assert_eq!(status_of(&format!("exit {status}")), Some(status));
    }
}

#[test]
fn a_command_killed_by_a_signal_gives_exit_status_128_plus_signal() {
    assert_eq!(status_of("kill -TERM $$"), Some(128 + 15));
    assert_eq!(status_of("kill -KILL $$"), Some(128 + 9));
    // Signal 40 is a real-time signal, for which the crate nix has no name.
    assert_eq!(status_of("kill -40 $$"), Some(128 + 40));
}

/// If the CLI exited normally, a shell's loop would continue after ^C.
#[test]
fn the_cli_dies_by_signal_if_the_command_dies_of_sigint() {
    assert_eq!(status_of("kill -INT $$"), None);
}

#[test]
fn the_permit_of_a_command_that_cannot_be_started_is_released() {
    let (url, name) = (shared_url(), unique_name());
    let (status, reported) =
        outcome(&mut run(&url, &[&name, "--limit", "1", "--", "/no/such/command"]));
    assert_eq!((status, reported.contains("/no/such/command")), (127, true), "{reported}");
    let (status, reported) = outcome(&mut run(&url, &[&name, "--", "/etc/passwd"]));
    assert_eq!((status, reported.contains("/etc/passwd")), (126, true), "{reported}");
    let (status, reported) = outcome(&mut run(&url, &[&name, "--", ""]));
    assert_eq!(
        (status, &*reported),
        (127, "redis-semaphore: the command is empty: name a program after '--'\n")
    );
    for shell in ["cd", "echo hi | cat", "/bin/echo hi | /bin/cat"] {
        let (status, stderr) = outcome(&mut run(&url, &[&name, "--", shell]));
        let is_advised = stderr.ends_with(": to use a shell, write -- sh -c '...'\n");
        assert!(status == 127 && is_advised, "{stderr}");
    }
    let folder = Folder::create();
    let file = folder.join("script");
    fs::write(&file, "#!/bin/sh\r\nexit 0\r\n").unwrap();
    fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    let (status, stderr) = outcome(&mut run(&url, &[&name, "--", file.to_str().unwrap()]));
    let is_explained = stderr.contains("the interpreter of its first line does not");
    assert!(status == 127 && is_explained, "{stderr}");
    await_held_and_queued(&url, &name, (0, 0));
}

#[test]
fn without_a_server_the_command_is_not_started() {
    // No server listens at port 1.
    let (status, reported) =
        outcome(&mut run("redis://127.0.0.1:1/", &["a", "--limit", "1", "--", "echo", "no"]));
    assert_eq!(status, 69);
    assert!(reported.contains("127.0.0.1:1"), "{reported}");
}

#[test]
fn a_run_without_a_permit_in_time_exits_with_75() {
    let (url, name) = (shared_url(), unique_name());
    let mut holder = Tool::start(&mut run(
        &url,
        &[&name, "--limit", "1", "--", "sh", "-c", "echo on; sleep 600"],
    ));
    assert_eq!(holder.line(), "on");
    for wait in [&["--no-wait"][..], &["--timeout", "0s"], &["--timeout", "3s"]] {
        let arguments = [&[&*name], wait, &["--", "echo", "no"]].concat();
        let (status, reported) = outcome(&mut run(&url, &arguments));
        assert_eq!(status, 75, "{reported}");
        assert!(reported.contains(&name), "{reported}");
    }
    await_held_and_queued(&url, &name, (1, 0));
    holder.signal(Signal::SIGTERM);
    assert_eq!(holder.ended().code(), Some(128 + 15));
    // With a timeout of 0 s, a free permit is still granted.
    let at_once = [&name, "--timeout", "0s", "--", "true"];
    for _ in 0..20 {
        assert_eq!(outcome(&mut run(&url, &at_once)).0, 0);
    }
}

/// With these options, the command's own statuses 75, 70 and 69 can be distinguished from the
/// statuses of the CLI.
#[test]
fn the_exit_statuses_of_the_cli_can_be_configured() {
    let (url, name) = (shared_url(), unique_name());
    let asked = ["--conflict-status", "0", "--lost-status", "41", "--error-status", "42"];
    let with = |url: &str, rest: &[&str]| run(url, &[&[&*name], &asked[..], rest].concat());
    let hold = ["--limit", "1", "--", "sh", "-c", "echo on; exec sleep 600"];
    let mut holder = Tool::start(&mut with(&url, &hold));
    assert_eq!(holder.line(), "on");
    assert_eq!(outcome(&mut with(&url, &["--no-wait", "--", "false"])).0, 0);
    assert_eq!(outcome(&mut with(&url, &["--timeout", "3s", "--", "false"])).0, 0);
    redis::cmd("DEL").arg(format!("sem:{{{name}}}:permits")).exec(&mut connect(&url)).unwrap();
    holder.signal(Signal::SIGTERM);
    assert_eq!(holder.ended().code(), Some(41));
    assert_eq!(outcome(&mut with("redis://127.0.0.1:1/", &["--", "true"])).0, 42);
    assert_eq!(outcome(&mut with(&url, &["--weight", "7", "--limit", "1", "--", "true"])).0, 42);
    for own in ["69", "70", "75"] {
        let exit = format!("exit {own}");
        let (status, reported) =
            outcome(&mut with(&url, &["--limit", "1", "--", "sh", "-c", &exit]));
        assert_eq!((status.to_string(), &*reported), (own.to_owned(), ""));
    }
}

/// Users must not see a panic. Each of these limits has caused a panic, or could cause a panic.
#[test]
fn a_lack_of_file_descriptors_is_reported_in_one_line() {
    let url = shared_url();
    // With fewer descriptors, the dynamic loader cannot open libraries.
    for limit in 4..13 {
        let text = format!("ulimit -n {limit}; exec $TOOL run a --limit 1 -- true");
        let (status, reported) = outcome(&mut script(&url, &text));
        assert_eq!(status, 71, "{limit}: {reported}");
        assert_eq!(reported.lines().count(), 1, "{limit}: {reported}");
        assert!(reported.contains("ulimit -n"), "{limit}: {reported}");
    }
}

/// The limit counts the processes of a user, so the CLI runs as a user without other processes.
#[test]
fn a_lack_of_processes_is_reported_with_advice() {
    if !geteuid().is_root() {
        return;
    }
    let (url, folder) = (shared_url(), Folder::create());
    let tool = folder.join("redis-semaphore");
    fs::copy(TOOL, &tool).unwrap();
    let mut failures = 0;
    for limit in 1..6 {
        let text = format!(
            "exec setpriv --reuid 64999 --clear-groups bash -c 'ulimit -u {limit}; exec {} run a \
             --limit 1 -- true'",
            tool.display()
        );
        let (status, stderr) = outcome(&mut script(&url, &text));
        assert!(status == 0 || status == 71 && stderr.contains("ulimit -u"), "{limit}: {stderr}");
        failures += u32::from(status == 71);
    }
    assert!(failures > 0, "no limit was too low");
}

/// A program bundle may contain its own loader, which gets options and the path of the CLI.
#[test]
fn the_dynamic_loader_may_start_the_cli() {
    let (url, name) = (shared_url(), unique_name());
    let loader = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];
    let Some(loader) = loader.into_iter().find(|path| std::path::Path::new(path).exists()) else {
        panic!("the loader of this system is not known to this test");
    };
    for options in ["", "--library-path /nowhere"] {
        let text = format!(
            "exec {loader} {options} $TOOL run {name} --limit 1 -- sh -c 'echo on; exit 5'"
        );
        let mut tool = Tool::start(&mut script(&url, &text));
        assert_eq!(tool.line(), "on");
        assert_eq!(tool.ended().code(), Some(5));
    }
}

#[test]
fn wrong_options_are_rejected_before_the_cli_connects() {
    let short = ["a", "--limit", "1", "--lease", "499ms", "--", "true"];
    let (status, reported) = outcome(&mut run("redis://127.0.0.1:1/", &short));
    assert_eq!(status, 2, "{reported}");
    assert!(
        reported.contains("499ms") && reported.contains("must be 500ms to 7days"),
        "{reported}"
    );
    let grace = ["a", "--limit", "1", "--lease", "9s", "--grace", "4s", "--", "true"];
    let (status, reported) = outcome(&mut run("redis://127.0.0.1:1/", &grace));
    assert_eq!(status, 2);
    assert!(reported.contains("--grace: 4s is more than a third of --lease (9s)"), "{reported}");
    for wrong in [&["a"][..], &["a", "--limit", "0", "--", "true"], &["a", "true"]] {
        assert_eq!(outcome(&mut run("redis://127.0.0.1:1/", wrong)).0, 2);
    }
}

#[test]
fn the_command_gets_its_permit_in_environment_variables() {
    let (url, name) = (shared_url(), unique_name());
    let shown = "echo $REDIS_SEMAPHORE_NAME; echo $REDIS_SEMAPHORE_ID; echo $REDIS_SEMAPHORE_TOKEN";
    let tokens = [(); 2].map(|()| {
        let tool = Tool::start(&mut run(&url, &[&name, "--limit", "1", "--", "sh", "-c", shown]));
        assert_eq!(tool.line(), name);
        assert!(tool.line().starts_with("P:"));
        tool.line().parse::<u64>().unwrap()
    });
    assert!(tokens[0] < tokens[1], "{tokens:?}");
}

#[test]
fn the_command_inherits_standard_input_and_output() {
    let (url, name) = (shared_url(), unique_name());
    let text = format!("echo hello | $TOOL run {name} --limit 1 -- tr a-z A-Z");
    let output = script(&url, &text).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "HELLO\n");
    assert!(output.stderr.is_empty(), "{output:?}");
}

/// A job scheduler may read the notes only after the end of the CLI.
#[test]
fn a_full_pipe_as_standard_error_does_not_block_the_cli() {
    let (url, name) = (shared_url(), unique_name());
    assert_eq!(outcome(&mut run(&url, &[&name, "--limit", "1", "--", "true"])).0, 0);
    let (_reader, mut full) = std::io::pipe().unwrap();
    ioctl_fionbio(&full, true).unwrap();
    while full.write(&[b'x'; 4096]).is_ok() {}
    ioctl_fionbio(&full, false).unwrap();
    // The CLI prints notes: `--limit` differs from the declared limit, and the permit is lost.
    let arguments = [&name, "--limit", "2", "--lease", "1s", "--", "sleep", "1000"];
    let mut running = Process::start(run(&url, &arguments).stderr(full));
    await_held_and_queued(&url, &name, (1, 0));
    let permits = format!("sem:{{{name}}}:permits");
    redis::cmd("DEL").arg(permits).exec(&mut connect(&url)).unwrap();
    let status = eventually("the end of the tool", || running.0.try_wait().unwrap());
    assert_eq!(status.code(), Some(70));
}

#[test]
fn an_unwritable_standard_error_does_not_stop_the_command() {
    let (url, name) = (shared_url(), unique_name());
    assert_eq!(outcome(&mut run(&url, &[&name, "--limit", "1", "--", "true"])).0, 0);
    // The CLI prints a note, because `--limit` differs from the effective limit each time.
    let folder = Folder::create();
    let full = format!("2>{}", folder.join("full").display());
    for (first, limit, error) in
        [("", 2, "2>/dev/full"), ("", 3, "2>&-"), ("ulimit -f 0;", 4, &full)]
    {
        let text = format!("{first} $TOOL run {name} --limit {limit} -- sh -c 'exit 4' {error}");
        assert_eq!(script(&url, &text).status().unwrap().code(), Some(4), "{first} {error}");
    }
}
