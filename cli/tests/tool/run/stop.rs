//! Tests of ^Z in which the CLI itself gets ^Z, or in which Redis does not reply afterwards. The
//! other tests of ^Z are in `terminal.rs`.

use std::fs;
use std::path::PathBuf;

use nix::sys::signal::Signal;

use super::support::pty::Shell;
use super::support::server::{connect, lease_end, now, shared_url};
use super::support::tool::{Tool, has_terminal, is_alive, run, state};
use crate::support::server::Server;
use crate::support::{eventually, unique_name};
use test_support::folder::Folder;

/// The files with the IDs of the commands, and the file that ends the commands.
struct Files(Folder);

impl Files {
    fn create() -> Self {
        Self(Folder::create())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.0.join(name)
    }

    /// Returns a script that runs until a file exists, and ignores SIGTERM. The script starts no
    /// process: see `terminal.rs`. The parent of the script is the guard, and the parent of the
    /// guard is the CLI.
    fn script(&self, name: &str) -> String {
        let (ids, end) = (self.path(name), self.path("end"));
        format!(
            "trap \"\" TERM; read _ _ _ tool _ < /proc/$PPID/stat; echo $$ $tool > {}; while [ ! \
             -e {} ]; do :; done; exit 4",
            ids.display(),
            end.display()
        )
    }

    /// Returns the process IDs of the script with this name and its CLI.
    fn ids(&self, name: &str) -> [i32; 2] {
        eventually("a command", || {
            let text = fs::read_to_string(self.path(name)).ok()?;
            let ids: Vec<_> = text.split_whitespace().map(|id| id.parse().unwrap()).collect();
            ids.try_into().ok()
        })
    }

    fn let_end(&self) {
        fs::write(self.path("end"), "").unwrap();
    }
}

fn await_stop(processes: impl IntoIterator<Item = i32>) {
    for process in processes {
        eventually("a stopped process", || (state(process) == Some('T')).then_some(()));
    }
}

/// A shell does not notify a running background process when `fg` moves it to the foreground.
#[test]
fn a_command_moved_to_the_foreground_stops_with_the_cli_on_ctrl_z() {
    let (name, files) = (unique_name(), Files::create());
    let mut shell = Shell::start(&shared_url());
    let script = files.script("one");
    shell.enter(&format!("$TOOL run {name} --limit 1 --lease 3s -- sh -c '{script}' &"));
    let [command, tool] = files.ids("one");
    shell.enter("fg; echo then $?");
    eventually("the foreground", || has_terminal(tool).then_some(()));
    shell.press("\x1a");
    shell.sees("Stopped");
    assert_eq!(state(command), Some('T'));
    shell.enter("fg; echo finally $?");
    files.let_end();
    shell.sees("finally 4");
}

/// Only one of the commands has the terminal.
#[test]
fn commands_of_one_job_stop_together() {
    let (name, files) = (unique_name(), Files::create());
    let mut shell = Shell::start(&shared_url());
    let script = files.script("{}");
    shell.enter(&format!(
        "printf \"1\\n2\\n\" | xargs -P2 -I{{}} $TOOL run {name} --limit 2 -- sh -c '{script}'; \
         echo then $?"
    ));
    let both = [files.ids("1"), files.ids("2")];
    eventually("the foreground", || both.iter().any(|[it, _]| has_terminal(*it)).then_some(()));
    for _ in 0..3 {
        shell.press("\x1a");
        shell.sees("Stopped");
        await_stop(both.into_iter().flatten());
        shell.enter("fg; echo finally $?");
        eventually("the foreground", || both.iter().any(|[it, _]| has_terminal(*it)).then_some(()));
        for process in both.into_iter().flatten() {
            eventually("the continuation of all", || (state(process) != Some('T')).then_some(()));
        }
    }
    files.let_end();
    // xargs returns 123 because a command has failed.
    shell.sees("finally 123");
}

#[test]
fn a_waiting_cli_can_be_stopped_and_continued() {
    let (url, name) = (shared_url(), unique_name());
    let sleep = [&*name, "--limit", "1", "--", "sh", "-c", "echo on; exec sleep 600"];
    let holder = Tool::start(&mut run(&url, &sleep));
    assert_eq!(holder.line(), "on");
    let mut shell = Shell::start(&url);
    shell.enter(&format!("$TOOL run {name} -- echo r''an"));
    shell.sees("waiting for a permit");
    shell.press("\x1a");
    shell.sees("Stopped");
    holder.signal(Signal::SIGTERM);
    shell.enter("fg");
    shell.sees("ran");
}

/// Starts a CLI and stops its command. After the stop, the server does not reply any more.
fn stop_in_an_outage(files: &Files, name: &str, options: &str) -> (Server, Shell, [i32; 2], u128) {
    let server = Server::start();
    let mut shell = Shell::start(&server.url);
    let script = files.script("one");
    shell.enter(&format!("$TOOL run {name} --limit 1 {options} -- sh -c '{script}'"));
    let ids = files.ids("one");
    eventually("the foreground", || has_terminal(ids[0]).then_some(()));
    shell.press("\x1a");
    shell.sees("Stopped");
    await_stop(ids);
    let end = lease_end(&mut connect(&server.url), name);
    server.signal(Signal::SIGSTOP);
    (server, shell, ids, end)
}

#[test]
fn a_command_continued_in_an_outage_is_ended_before_its_lease_expires() {
    let (name, files) = (unique_name(), Files::create());
    let options = "--lease 9s --grace 3s --response-timeout 500ms";
    let (_server, mut shell, [command, _], end) = stop_in_an_outage(&files, &name, options);
    // The rest of the lease is shorter than the grace period.
    eventually("the last seconds of the lease", || (now() + 2_000 > end).then_some(()));
    shell.enter("fg; echo finally $?");
    eventually("the end of the command", || (!is_alive(command)).then_some(()));
    let ended = now();
    assert!(ended < end, "it ended {} ms after its lease", ended - end);
    shell.sees("the permit was not refreshed in time");
    shell.sees("finally 70");
}

/// The rest of the lease is too short to end the command, but Redis replies.
#[test]
fn a_command_continued_shortly_before_its_lease_expires_keeps_its_permit() {
    let (name, files) = (unique_name(), Files::create());
    let (server, mut shell, _, end) = stop_in_an_outage(&files, &name, "--lease 15s --grace 5s");
    server.signal(Signal::SIGCONT);
    eventually("the last seconds of the lease", || (now() + 5_500 > end).then_some(()));
    shell.enter("fg; echo finally $?");
    eventually("a refresh", || (lease_end(&mut connect(&server.url), &name) > end).then_some(()));
    files.let_end();
    shell.sees("finally 4");
}

/// Before the command continues, the CLI refreshes the permit. During this call, the CLI handles no
/// signal, so the call must not take long.
#[test]
fn a_silent_server_does_not_block_the_continuation_of_a_command() {
    let (name, files) = (unique_name(), Files::create());
    let options = "--lease 1h --response-timeout 10min";
    let (server, mut shell, [command, _], _) = stop_in_an_outage(&files, &name, options);
    shell.enter("fg; echo finally $?");
    eventually("the continuation of the command", || (state(command) != Some('T')).then_some(()));
    server.signal(Signal::SIGCONT);
    files.let_end();
    shell.sees("finally 4");
}
