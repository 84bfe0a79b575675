//! The client name of a job.

use nix::sys::signal::Signal;

use super::support::server::shared_url;
use super::support::tool::{Tool, outcome, run};
use crate::support::tool::{Outcome, tool};
use crate::support::unique_name;

/// Returns the client name and the ID of the only holder, as `inspect` shows them.
fn holder(url: &str, name: &str) -> [String; 2] {
    let shown = at(url, &["inspect", name, "--json"]).json();
    let text = |key| shown["holders"][0][key].as_str().unwrap().to_owned();
    [text("client"), text("id")]
}

fn at(url: &str, arguments: &[&str]) -> Outcome {
    let mut command = tool(arguments);
    command.env("REDIS_URL", url);
    Outcome::of(command)
}

#[test]
fn the_client_name_begins_with_the_label_or_the_command_name() {
    let url = shared_url();
    for (label, called) in [(&["--label", "night-shift"][..], "night-shift"), (&[], "sh")] {
        let name = unique_name();
        let command = ["--limit", "1", "--", "/bin/sh", "-c", "echo on; exec sleep 600"];
        let mut held = Tool::start(&mut run(&url, &[&[&*name], label, &command].concat()));
        assert_eq!(held.line(), "on");
        let [client_name, id] = holder(&url, &name);
        assert!(client_name.starts_with(&format!("{called}.")), "{client_name}");
        assert!(client_name.ends_with(&format!(".{}", held.id())), "{client_name}");
        let revoked = at(&url, &["revoke", &name, &id]);
        assert!(
            revoked
                .stdout
                .contains(&format!("the permit was revoked. If its holder, {client_name}, still")),
            "{revoked:?}"
        );
        held.signal(Signal::SIGTERM);
        held.ended();
    }
}

#[test]
fn an_invalid_label_is_rejected() {
    for label in ["", "two words", "a:b", &"x".repeat(33)] {
        let arguments = ["a", "--limit", "1", "--label", label, "--", "true"];
        let (status, reported) = outcome(&mut run("redis://127.0.0.1:1/", &arguments));
        assert!(status == 2 && reported.contains("--label"), "{label:?}: {status}: {reported}");
    }
}
