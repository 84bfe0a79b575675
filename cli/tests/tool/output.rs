//! Tests the CLI with output that cannot be written. Also tests its man page and its shell
//! completions.

use std::fs::File;
use std::process::Command;

use test_support::folder::Folder;

use crate::support::server::Server;
use crate::support::tool::{Outcome, TOOL, tool};

fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

#[test]
fn an_invalid_rust_log_value_is_reported() {
    let server = Server::start();
    let mut command = tool(&["ls"]);
    command.env("REDIS_URL", &server.url).env("RUST_LOG", "redis_semaphore=warning");
    let outcome = Outcome::of(command);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    assert!(
        outcome.stderr.contains("so nothing is logged: write it like RUST_LOG="),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn output_that_cannot_be_written_gives_exit_status_74() {
    let server = Server::start_with(&["--appendonly", "yes"]);
    let jobs = server.semaphores().await.semaphore("jobs").limit(2).build().unwrap();
    let held = jobs.acquire().await.unwrap();
    for arguments in [
        &["ls"][..],
        &["ls", "--json"],
        &["inspect", "jobs"],
        &["inspect", "--json", "jobs"],
        &["limit", "jobs"],
        &["limit", "--json", "jobs", "3"],
        &["doctor"],
        &["doctor", "--json"],
        &["revoke", "jobs", held.id()],
        &["load", "--duration", "1s"],
        &["demo"],
        &["man"],
        &["completions", "bash"],
        &["--help"],
        &["--version"],
    ] {
        let mut command = tool(arguments);
        command.env("REDIS_URL", &server.url).stdout(full());
        Outcome::of(command).fails(74, "the output could not be written: ");
    }
}

#[test]
fn a_file_at_its_size_limit_gives_exit_status_74() {
    let folder = Folder::create();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 0; exec \"$0\" man >\"$1\"", TOOL]).arg(folder.join("full"));
    Outcome::of(command).fails(74, "the output could not be written: ");
}

/// This test closes the pipe as `head` does.
#[test]
fn a_closed_output_pipe_gives_exit_status_74_without_a_message() {
    let server = Server::start();
    for arguments in [&["ls"][..], &["man"], &["--help"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = tool(arguments);
        command.env("REDIS_URL", &server.url).stdout(writer);
        let outcome = Outcome::of(command);
        assert_eq!((outcome.status, &*outcome.stderr), (Some(74), ""), "{arguments:?}");
    }
}

#[test]
fn an_unwritable_standard_error_does_not_change_the_exit_status() {
    let server = Server::start();
    let mut command = tool(&["ls"]);
    command.env("REDIS_URL", &server.url).stderr(full());
    let listed = command.output().unwrap();
    assert!(listed.status.success() && listed.stdout.starts_with(b"NAME"), "{listed:?}");
    // If error messages cannot be printed either, the exit status still reports the error.
    assert_eq!(command.stdout(full()).status().unwrap().code(), Some(74));
}

#[test]
fn a_lack_of_file_descriptors_gives_exit_status_71() {
    let mut command = Command::new("sh");
    // The tests may run with file descriptor 3 open. The limit allows no descriptor above 3.
    command.args(["-c", &format!("exec 3>&-; ulimit -n 4; exec {TOOL} ls")]);
    Outcome::of(command).fails(71, "cannot start the async runtime: ");
}

#[test]
fn the_manual_describes_commands_and_their_options() {
    let manual = Outcome::of(tool(&["man"])).stdout.replace('\\', "");
    for text in ["redis-semaphore run", "--no-wait", "--limit", "redis-semaphore ls", "--hold"] {
        assert!(manual.contains(text), "{text}");
    }
    assert!(manual.contains("<fINAMEfR> -- <fICOMMANDfR>..."), "the usage of run: {manual}");
    assert_eq!(manual.matches("--password-file").count(), 2, "in the synopsis and in the list");
    assert!(manual.contains("Only the environment variable may contain a password"), "{manual}");
}

#[test]
fn bash_completes_the_options_of_a_command() {
    let script = Outcome::of(tool(&["completions", "bash"])).stdout;
    assert!(!script.contains("<NAME>"), "no user types this: {script}");
    // Completes like bash: calls the registered function with the command, the word and the
    // previous word.
    let complete = "\
        registered=($(complete -p redis-semaphore))
        COMP_WORDS=(redis-semaphore run --li) COMP_CWORD=2
        ${registered[-2]} redis-semaphore --li run
        echo ${COMPREPLY[@]}";
    let mut bash = Command::new("bash");
    bash.args(["-c", &format!("{script}\n{complete}")]);
    let completed = Outcome::of(bash);
    assert_eq!(completed.stdout, "--limit\n", "{completed:?}");
}

/// Only the CLI itself may start a guard or a worker of `load`.
#[test]
fn internal_commands_are_rejected_and_have_no_completions() {
    Outcome::of(tool(&["guard"])).fails(2, "unrecognized subcommand 'guard'");
    Outcome::of(tool(&["load", "--worker"])).fails(2, "unexpected argument '--worker'");
    for shell in ["bash", "zsh", "fish"] {
        let completions = Outcome::of(tool(&["completions", shell])).stdout;
        assert!(completions.contains("completions"), "{completions}");
        assert!(!completions.contains("guard") && !completions.contains("worker"), "{completions}");
    }
}
