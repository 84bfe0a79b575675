//! Tests which limit applies to a run.

use super::support::server::{await_held_and_queued, connect, shared_url};
use super::support::tool::{Tool, outcome, run};
use crate::support::tool::{Outcome, tool};
use crate::support::unique_name;

#[test]
fn without_the_limit_option_the_existing_limit_applies() {
    let (url, name) = (shared_url(), unique_name());
    let (status, told) = outcome(&mut run(&url, &[&name, "--", "echo", "no"]));
    assert_eq!(status, 2);
    assert!(told.contains("no limit exists") && told.contains("--limit N"), "{told}");
    let declare = [&*name, "--limit", "2", "--", "true"];
    assert_eq!(outcome(&mut run(&url, &declare)), (0, String::new()));
    assert_eq!(outcome(&mut run(&url, &[&name, "--", "true"])), (0, String::new()));
    assert_eq!(outcome(&mut run(&url, &[&name, "--weight", "2", "--", "true"])).0, 0);
    let (status, told) = outcome(&mut run(&url, &[&name, "--weight", "3", "--", "true"]));
    assert_eq!((status, told.contains("the limit of 2")), (2, true), "{told}");
}

#[test]
fn a_limit_that_differs_from_the_effective_limit_is_reported() {
    let (url, name) = (shared_url(), unique_name());
    let declare = |limit| outcome(&mut run(&url, &[&name, "--limit", limit, "--", "true"]));
    assert_eq!(declare("2"), (0, String::new()));
    let (status, told) = declare("3");
    assert_eq!(status, 0);
    assert!(told.contains("--limit 3 replaces the limit 2"), "{told}");
    let state = format!("sem:{{{name}}}:state");
    let mut set = redis::cmd("HSET");
    set.arg(&state).arg("runtime").arg(5).exec(&mut connect(&url)).unwrap();
    let (status, told) = declare("4");
    assert_eq!(status, 0);
    assert!(told.contains("the runtime limit 5 applies; --limit 4 applies after"), "{told}");
}

/// Without the note, a user might not notice that the command may wait forever.
#[test]
fn a_wait_for_a_weight_above_the_runtime_limit_is_reported() {
    let (url, name) = (shared_url(), unique_name());
    let set = |limit| Outcome::of(tool(&["--url", &url, "limit", &name, limit])).status;
    assert_eq!(set("3"), Some(0));
    let mut waiting = Tool::start(&mut run(&url, &[&name, "--weight", "9", "--", "true"]));
    await_held_and_queued(&url, &name, (0, 1));
    assert_eq!(set("9"), Some(0));
    assert_eq!(waiting.ended().code(), Some(0));
    let told = waiting.errors();
    assert!(
        told.contains("--weight 9 exceeds the runtime limit 3, so the command waits"),
        "{told}"
    );
    assert_eq!(
        outcome(&mut run(&url, &[&name, "--weight", "9", "--", "true"])),
        (0, String::new())
    );
}
