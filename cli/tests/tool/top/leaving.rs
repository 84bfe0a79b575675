//! `top` leaves the terminal as it was.

use std::process::Command;

use redis_semaphore::redis::cmd;

use super::pane::Pane;
use super::support::top;
use super::three;
use crate::support::eventually;
use crate::support::server::Server;
use crate::support::tool::{Outcome, TOOL, tool};
use test_support::folder::Folder;

#[test]
fn quit_keys_end_top_and_restore_the_terminal() {
    let server = Server::start();
    for key in ["q", "Escape", "C-c"] {
        let folder = Folder::create();
        let pane = Pane::start_between_looks(&top(&server), &folder.0);
        pane.wait_for_text("No semaphore exists");
        assert_eq!(pane.ask("#{alternate_on}"), "1");
        pane.press(&[key]);
        let text = pane.must_be_as_before(&folder.0);
        assert!(text.contains("left: 0"), "{key}: {text}");
    }
}

/// If the user quits right after a change, the outcome of the change is printed on the normal
/// screen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_made_right_before_quitting_top_is_applied() {
    let server = Server::start();
    let (jobs, _permits) = three(&server).await;
    let folder = Folder::create();
    let pane = Pane::start_between_looks(&top(&server), &folder.0);
    pane.wait_for_text("3/3");
    pane.press(&["Down", "l"]);
    pane.wait_for_text("New limit");
    pane.press(&["7", "Enter", "q"]);
    let text = pane.must_be_as_before(&folder.0);
    assert!(text.contains("jobs: the limit is now 7"), "{text}");
    assert_eq!(jobs.limit().await.unwrap(), 7);
}

/// Starts `top`, and returns its process ID.
fn start(server: &Server, folder: &Folder) -> (Pane, String) {
    // `exec` gives the program the process ID of the shell.
    let command = format!("sh -c 'echo $$ > {}/id; exec {}'", folder.0.display(), top(server));
    let pane = Pane::start_between_looks(&command, &folder.0);
    pane.wait_for_text("No semaphore exists");
    let id = std::fs::read_to_string(folder.0.join("id")).unwrap();
    (pane, id.trim().to_owned())
}

#[test]
fn sigterm_ends_top_and_restores_the_terminal() {
    let server = Server::start();
    let folder = Folder::create();
    let (pane, id) = start(&server, &folder);
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    pane.must_be_as_before(&folder.0);
}

#[test]
fn top_ends_when_its_terminal_is_gone() {
    let (server, folder) = (Server::start(), Folder::create());
    let status = folder.0.join("status");
    // The program notices the end by its reads and writes, because it ignores SIGHUP.
    let command = format!("trap '' HUP; {}; echo $? > {}", top(&server), status.display());
    let pane = Pane::start(&command);
    pane.wait_for_text("No semaphore exists");
    drop(pane);
    let ended = || std::fs::read_to_string(&status).ok().filter(|status| status.ends_with('\n'));
    let status = eventually("its end", ended);
    // Either a read or a write fails first.
    assert!(["0\n", "74\n"].contains(&&*status), "{status}");
}

/// `fg` in a shell does the same: the shell restores the terminal while `top` is stopped.
#[test]
fn after_a_stop_top_takes_the_terminal_again() {
    let server = Server::start();
    let folder = Folder::create();
    let (pane, id) = start(&server, &folder);
    let terminal = pane.ask("#{pane_tty}");
    let steps = format!("kill -STOP {id}; stty sane -F {terminal}; kill -CONT {id}");
    assert!(Command::new("sh").args(["-ec", &steps]).status().unwrap().success());
    pane.wait_for("raw mode", |_| {
        let settings = Command::new("stty").args(["-a", "-F", &terminal]).output().unwrap();
        String::from_utf8(settings.stdout).unwrap().contains("-icanon")
    });
    pane.press(&["q"]);
    pane.must_be_as_before(&folder.0);
}

#[test]
fn an_error_ends_top_restores_the_terminal_and_is_printed() {
    let server = Server::start();
    let mut rule = cmd("ACL");
    rule.arg(&["SETUSER", "default", "-scan"]).exec(&mut server.connect()).unwrap();
    let folder = Folder::create();
    let pane = Pane::start_between_looks(&top(&server), &folder.0);
    let text = pane.must_be_as_before(&folder.0);
    // The terminal breaks long lines.
    let unbroken = text.replace(['\r', '\n'], "");
    assert!(unbroken.contains("left: 69") && unbroken.contains("+scan"), "{text}");
}

#[test]
fn an_interval_out_of_bounds_is_rejected() {
    for (wrong, reason) in [("49ms", "50ms or more"), ("500000000000weeks", "7days or less")] {
        Outcome::of(tool(&["top", "--every", wrong])).fails(2, reason);
    }
}

#[test]
fn without_a_terminal_top_suggests_ls() {
    let output = Command::new(TOOL).arg("top").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let reported = String::from_utf8(output.stderr).unwrap();
    assert!(reported.contains("`redis-semaphore ls`"), "{reported}");
}
