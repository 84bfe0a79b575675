//! The CLI at a terminal, in a shell with job control.

use std::fs;
use std::path::PathBuf;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::support::pty::Shell;
use super::support::server::{await_held_and_queued, connect, held_and_queued, shared_url};
use super::support::tool::{Tool, outcome, run, state};
use crate::support::eventually;
use crate::support::unique_name;

/// The beginning of a test command. The command reads a line as soon as it has the terminal. Before
/// the command has the terminal, the CLI gets ^C and ^Z.
const BEGIN: &str = "echo first; read x; echo on";

fn has_begun(shell: &mut Shell) {
    shell.sees("first");
    shell.enter("");
    shell.sees("on");
}

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(name)
}

/// Runs a script in a shell without job control, inside a shell with job control.
fn enter_script(shell: &mut Shell, name: &str, script: &str) {
    fs::write(file(name), script).unwrap();
    shell.enter(&format!("bash {}", file(name).display()));
}

#[test]
fn the_command_gets_the_terminal_and_the_shell_gets_it_back() {
    let name = unique_name();
    let mut shell = Shell::start(&shared_url());
    // When a job stops, the shell prints the command line of the job. This line must not look like
    // the output of the job.
    shell.enter(&format!(
        "sh -c '$TOOL run {name} --limit 1 -- sh -c \"echo one; read x; echo re\\\"\\\"ad \\$x\"; \
         echo two; read y; echo the\"\"n $y'"
    ));
    shell.sees("one");
    shell.enter("1st");
    shell.sees("read 1st");
    shell.sees("two");
    shell.enter("2nd");
    shell.sees("then 2nd");
    shell.enter("echo e''nd");
    shell.sees("end");
}

// A command that will be stopped or interrupted must not start processes. Between vfork and exec, a
// signal to stop makes the shell hang, and an interrupt is lost.

#[test]
fn ctrl_c_ends_the_command_and_the_loop_of_the_shell() {
    let name = unique_name();
    let mut shell = Shell::start(&shared_url());
    shell.enter(&format!(
        "for i in 1 2; do $TOOL run {name} --limit 1 -- sh -c '{BEGIN}; while :; do :; done'; done"
    ));
    has_begun(&mut shell);
    shell.press("\x03");
    shell.sees("$ ");
    shell.enter("echo status $?");
    shell.sees("status 130");
    await_held_and_queued(&shared_url(), &name, (0, 0));
}

/// The shell restores the settings only if its own child dies of a signal.
#[test]
fn the_settings_of_the_terminal_are_restored_after_a_command_was_killed() {
    let name = unique_name();
    let mut shell = Shell::start(&shared_url());
    shell.enter(&format!(
        "$TOOL run {name} --limit 1 -- sh -c '{BEGIN}; stty raw; kill -9 $$'; stty -a | grep -o \
         '[-]*icanon' | sed s/^/is:/"
    ));
    has_begun(&mut shell);
    shell.sees("is:icanon");
}

/// The terminal sends the signal only to the command, which is in the foreground, and not to the
/// shell that runs the script.
#[test]
fn ctrl_c_ends_the_script_that_runs_the_cli() {
    let name = unique_name();
    let run = format!("$TOOL run {name} --limit 1 -- sh -c '{BEGIN}; while :; do :; done'");
    let mut shell = Shell::start(&shared_url());
    enter_script(&mut shell, &name, &format!("{run}\necho went on; sleep 600\n"));
    has_begun(&mut shell);
    shell.press("\x03");
    shell.sees("$ ");
    shell.enter("echo status $?");
    shell.sees("status 130");
    fs::remove_file(file(&name)).unwrap();
}

/// In the background of a script, the CLI is in the process group of the script, which continues in
/// the foreground.
#[test]
fn in_the_background_of_a_script_the_cli_does_not_take_the_terminal() {
    let name = unique_name();
    let run = format!("$TOOL run {name} --limit 1 -- sh -c 'echo on; exec sleep 600'");
    let mut shell = Shell::start(&shared_url());
    let reads = "for i in 1 2 3; do read x; echo read $x; done";
    enter_script(&mut shell, &name, &format!("{run} &\n{reads}; kill $!; wait\n"));
    shell.sees("on");
    // A read that has begun succeeds, even if another process group now has the terminal. So only
    // the later reads show that the script still has the terminal.
    for line in ["1st", "2nd", "3rd"] {
        shell.enter(line);
        shell.sees(&format!("read {line}"));
    }
    await_held_and_queued(&shared_url(), &name, (0, 0));
    fs::remove_file(file(&name)).unwrap();
}

/// A command that reads before it gets the terminal gets SIGTTIN. In this test, the command sends
/// the signal to itself.
#[test]
fn a_command_that_read_before_it_got_the_terminal_is_not_stopped() {
    let name = unique_name();
    let mut shell = Shell::start(&shared_url());
    shell.enter(&format!(
        "$TOOL run {name} --limit 1 -- sh -c 'echo on; read x; kill -TTIN $$; echo read $x'"
    ));
    shell.sees("on");
    // If the command can read, it has the terminal.
    shell.enter("1st");
    shell.sees("read 1st");
}

#[test]
fn a_stopped_command_continues_with_its_permit() {
    let (url, name) = (shared_url(), unique_name());
    let mut shell = Shell::start(&url);
    let script = format!("{BEGIN}; while [ ! -e {} ]; do :; done; exit 4", file(&name).display());
    shell.enter(&format!("$TOOL run {name} --limit 1 -- sh -c '{script}'; echo status $?"));
    has_begun(&mut shell);
    shell.press("\x1a");
    shell.sees("Stopped");
    fs::write(file(&name), "").unwrap();
    // The stopped command does not continue by itself.
    assert_eq!(held_and_queued(&mut connect(&url), &name), (1, 0));
    shell.enter("fg; echo then $?");
    shell.sees("then 4");
    await_held_and_queued(&url, &name, (0, 0));
    fs::remove_file(file(&name)).unwrap();
}

/// With `stty tostop`, a background process that writes is stopped until it is in the foreground.
#[test]
fn a_background_command_that_writes_is_stopped_under_stty_tostop() {
    let (url, name) = (shared_url(), unique_name());
    let mut shell = Shell::start(&url);
    shell.enter(&format!(
        "stty tostop; $TOOL run {name} --limit 1 -- sh -c 'echo out\"\"put; exit 4' & true"
    ));
    shell.enter("until jobs -s | grep -q TOOL; do read -t 0.05; done; echo sto''pped");
    shell.sees("stopped");
    assert_eq!(held_and_queued(&mut connect(&url), &name), (1, 0));
    shell.enter("fg; echo then $?");
    shell.sees("output");
    shell.sees("then 4");
    await_held_and_queued(&url, &name, (0, 0));
}

#[test]
fn a_command_stopped_for_longer_than_its_lease_is_ended_on_continue() {
    let (url, name) = (shared_url(), unique_name());
    let mut shell = Shell::start(&url);
    let script = format!("trap \"echo cleaned; exit\" TERM; {BEGIN}; while :; do :; done");
    shell.enter(&format!("$TOOL run {name} --limit 1 --lease 1s -- sh -c '{script}'"));
    has_begun(&mut shell);
    shell.press("\x1a");
    shell.sees("Stopped");
    let mut next = run(&url, &[&name, "--", "true"]);
    assert!(next.status().unwrap().success());
    eventually("the end of the lease", || {
        (held_and_queued(&mut connect(&url), &name) == (0, 0)).then_some(())
    });
    shell.enter("fg; echo then $?");
    shell.sees("cleaned");
    shell.sees("then 70");
}

/// The CLI is stopped, so it cannot notice that the command continues.
#[test]
fn a_command_continued_by_another_process_after_its_lease_is_ended() {
    let (url, name) = (shared_url(), unique_name());
    let mut shell = Shell::start(&url);
    let script = format!("echo $$ > {}; {BEGIN}; while :; do :; done", file(&name).display());
    shell.enter(&format!("$TOOL run {name} --limit 1 --lease 1s -- sh -c '{script}'"));
    has_begun(&mut shell);
    let command = fs::read_to_string(file(&name)).unwrap().trim_end().parse().unwrap();
    shell.press("\x1a");
    shell.sees("Stopped");
    let next = run(&url, &[&name, "--", "true"]).status().unwrap();
    assert!(next.success());
    assert_eq!(state(command), Some('T'));
    kill(Pid::from_raw(command), Signal::SIGCONT).unwrap();
    // The guard reaps the ended command. Without a guard, the command stays a zombie, because the
    // CLI is stopped.
    eventually("its end", || matches!(state(command), None | Some('Z')).then_some(()));
    fs::remove_file(file(&name)).unwrap();
}

/// Only the server knows that the permit was lost.
#[test]
fn a_command_whose_permit_was_lost_while_stopped_does_not_continue() {
    let (url, name) = (shared_url(), unique_name());
    let mut shell = Shell::start(&url);
    let went_on = file(&name).display().to_string();
    let script = format!("{BEGIN}; while :; do [ -e {went_on} ] && echo went on; done");
    shell.enter(&format!("$TOOL run {name} --limit 1 -- sh -c '{script}'"));
    has_begun(&mut shell);
    shell.press("\x1a");
    shell.sees("Stopped");
    fs::write(&went_on, "").unwrap();
    let permits = format!("sem:{{{name}}}:permits");
    redis::cmd("DEL").arg(permits).exec(&mut connect(&url)).unwrap();
    shell.enter("fg; echo then $?");
    shell.sees("the permit was lost");
    shell.sees("then 70");
    assert!(!shell.has_shown("\nwent on"));
    fs::remove_file(went_on).unwrap();
}

#[test]
fn in_the_background_the_cli_does_not_take_the_terminal() {
    let name = unique_name();
    let mut shell = Shell::start(&shared_url());
    shell.enter(&format!("$TOOL run {name} --limit 1 -- sh -c 'echo on; read x; echo read $x' &"));
    shell.sees("on");
    shell.enter("echo shell''s");
    shell.sees("shells");
    // The background command is stopped because it tries to read.
    shell.enter("until jobs | grep Stopped; do sleep 0.01; done");
    shell.sees("Stopped");
    shell.enter("fg; echo then $?");
    shell.enter("this");
    shell.sees("read this");
    shell.sees("then 0");
}

#[test]
fn a_wait_is_reported_to_a_terminal_but_not_to_a_log() {
    let (url, name) = (shared_url(), unique_name());
    let sleep = ["--limit", "1", "--", "sh", "-c", "echo on; sleep 600"];
    let holder = Tool::start(&mut run(&url, &[&[&*name], &sleep[..]].concat()));
    assert_eq!(holder.line(), "on");
    // The wait is longer than the time after which a note appears.
    let (status, errors) = outcome(&mut run(&url, &[&name, "--timeout", "1100ms", "--", "true"]));
    assert!(status == 75 && !errors.contains("waiting"), "{status}: {errors}");
    let mut shell = Shell::start(&url);
    shell.enter(&format!("$TOOL run {name} -- echo r''an"));
    shell.sees(&format!("semaphore {name}: waiting for a permit"));
    holder.signal(Signal::SIGTERM);
    shell.sees("ran");
}
