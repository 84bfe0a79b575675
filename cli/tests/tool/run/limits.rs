//! Tests which limit applies to a run.

use super::support::server::{await_held_and_queued, connect, shared_url};
use super::support::tool::{Tool, outcome, run};
use crate::support::tool::{Outcome, tool};
use crate::support::unique_name;

#[test]
fn without_the_limit_option_the_existing_limit_applies() {
    let (url, name) = (shared_url(), unique_name());
    let (status, reported) = outcome(&mut run(&url, &[&name, "--", "echo", "no"]));
    assert_eq!(status, 2);
    assert!(reported.contains("no limit exists") && reported.contains("--limit N"), "{reported}");
    let declare = [&*name, "--limit", "2", "--", "true"];
    assert_eq!(outcome(&mut run(&url, &declare)), (0, String::new()));
    assert_eq!(outcome(&mut run(&url, &[&name, "--", "true"])), (0, String::new()));
    assert_eq!(outcome(&mut run(&url, &[&name, "--weight", "2", "--", "true"])).0, 0);
    let (status, reported) = outcome(&mut run(&url, &[&name, "--weight", "3", "--", "true"]));
    assert_eq!((status, reported.contains("the limit of 2")), (2, true), "{reported}");
}

#[test]
fn a_limit_that_differs_from_the_effective_limit_is_reported() {
    let (url, name) = (shared_url(), unique_name());
    let declare = |limit| outcome(&mut run(&url, &[&name, "--limit", limit, "--", "true"]));
    assert_eq!(declare("2"), (0, String::new()));
    let (status, reported) = declare("3");
    assert_eq!(status, 0);
    assert!(reported.contains("--limit 3 replaces the limit 2"), "{reported}");
    let state = format!("sem:{{{name}}}:state");
    let mut set = redis::cmd("HSET");
    set.arg(&state).arg("runtime").arg(5).exec(&mut connect(&url)).unwrap();
    let (status, reported) = declare("4");
    assert_eq!(status, 0);
    assert!(
        reported.contains("the runtime limit 5 applies; --limit 4 applies after"),
        "{reported}"
    );
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
    let reported = waiting.errors();
    assert!(
        reported.contains("--weight 9 exceeds the runtime limit 3: the command waits"),
        "{reported}"
    );
    assert_eq!(
        outcome(&mut run(&url, &[&name, "--weight", "9", "--", "true"])),
        (0, String::new())
    );
}

#[test]
fn a_weight_above_the_runtime_limit_is_reported_if_a_limit_is_declared() {
    let (url, name) = (shared_url(), unique_name());
    let set = |limit| Outcome::of(tool(&["--url", &url, "limit", &name, limit])).status;
    assert_eq!(set("3"), Some(0));
    for declared in ["3", "9"] {
        let request = [&*name, "--limit", declared, "--weight", "9"];
        let (status, reported) =
            outcome(&mut run(&url, &[&request[..], &["--no-wait", "--", "true"]].concat()));
        assert_eq!(
            (status, reported.contains("the limit is below the weight")),
            (75, true),
            "{reported}"
        );
        let mut waiting = Tool::start(&mut run(&url, &[&request[..], &["--", "true"]].concat()));
        await_held_and_queued(&url, &name, (0, 1));
        assert_eq!(set("9"), Some(0));
        assert_eq!(waiting.ended().code(), Some(0));
        let reported = waiting.errors();
        assert!(reported.contains("--weight 9 exceeds the runtime limit 3"), "{reported}");
        assert_eq!(set("3"), Some(0));
    }
}

#[test]
fn a_rejected_request_does_not_claim_that_its_limit_applies() {
    let (url, name) = (shared_url(), unique_name());
    assert_eq!(outcome(&mut run(&url, &[&name, "--limit", "5", "--", "true"])).0, 0);
    let heavy = [&*name, "--limit", "2", "--weight", "3", "--", "true"];
    let (status, reported) = outcome(&mut run(&url, &heavy));
    assert_eq!((status, reported.lines().count()), (2, 1), "{reported}");
    assert!(reported.contains("a weight of 3 exceeds the limit of 2"), "{reported}");
    assert_eq!(outcome(&mut run(&url, &[&name, "--weight", "5", "--", "true"])).0, 0);
}
