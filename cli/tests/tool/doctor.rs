//! Tests the text, the JSON and the exit status of `doctor`.

use serde_json::json;

use crate::support::server::Server;
use crate::support::tool::{Outcome, tool};

/// The example in the guide uses the server of `scripts/with-redis`, and so does this test.
#[test]
fn the_doctor_prints_the_output_that_the_guide_shows() {
    let mut command = tool(&["doctor"]);
    command.env("REDIS_URL", std::env::var("REDIS_URL").expect("scripts/with-redis"));
    let Outcome { status, stdout, stderr } = Outcome::of(command);
    assert_eq!((status, stderr.as_str()), (Some(1), ""), "{stdout}");
    let (server, checks) = stdout.split_once('\n').unwrap();
    assert!(server.starts_with("127.0.0.1:"), "{server}");
    let block = format!(
        "$ scripts/with-redis cargo run --quiet -p redis-semaphore-cli -- doctor\n\
         127.0.0.1:12345, redis 7.0.15\n{checks}```"
    );
    let guide = include_str!("../../../docs/guide.md");
    assert!(guide.contains(&block), "docs/guide.md has no such block:\n{block}");
}

#[test]
fn the_doctor_exits_with_0_for_notices_and_69_without_a_server() {
    let server = Server::start_with(&["--appendonly", "yes"]);
    let Outcome { status, stdout, stderr } = server.tool(&["doctor"]);
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    // Without a terminal, there are no colors.
    assert!(stdout.lines().skip(1).all(|line| line.starts_with("ok ")), "{stdout}");
    server.run("CONFIG SET appendfsync no");
    let Outcome { status, stdout, .. } = server.tool(&["doctor"]);
    assert!(status == Some(0) && stdout.contains("\nnotice "), "{stdout}");
    let url = server.url.clone();
    drop(server);
    let gone = Outcome::of(tool(&["--url", &url, "doctor"]));
    gone.fails(69, "redis-semaphore: cannot connect to Redis at 127.0.0.1:");
    assert!(gone.stderr.contains("nothing listens there: start the server"), "{gone:?}");
}

#[test]
fn the_doctor_suggests_read_only_if_write_rights_are_missing() {
    let server = Server::start();
    server
        .run("ACL SETUSER looker on nopass ~* &* +@read +@connection +evalsha +script|load +eval +time +ping +subscribe");
    let doctor = |options: &[&str]| {
        let mut command = tool(&[&["doctor"], options].concat());
        command.env("REDIS_URL", format!("redis://looker:x@127.0.0.1:{}", server.port));
        Outcome::of(command)
    };
    let plain = doctor(&[]);
    assert_eq!(plain.status, Some(1), "{plain:?}");
    assert!(plain.stdout.contains("the user lacks the right +"), "{plain:?}");
    assert!(plain.stderr.contains("for a user that only reads, add --read-only"), "{plain:?}");
    assert!(!doctor(&["--read-only"]).stderr.contains("--read-only"));
}

#[test]
fn json_output_of_the_doctor_has_each_check_with_its_fix() {
    let server = Server::start();
    let outcome = server.tool(&["doctor", "--json"]);
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    let diagnosis = outcome.json();
    assert_eq!(diagnosis["worst"], "critical");
    let [examined] = &diagnosis["servers"].as_array().unwrap()[..] else { panic!("{diagnosis}") };
    assert_eq!(examined["address"], format!("127.0.0.1:{}", server.port));
    let checks = examined["checks"].as_array().unwrap();
    assert_eq!(checks.len(), 10, "{diagnosis}");
    assert_eq!(checks[0]["name"], "persistence");
    assert_eq!(checks[0]["verdict"], "critical");
    assert_eq!(checks[0]["fix"], "CONFIG SET appendonly yes");
    let healthy = checks.iter().find(|check| check["name"] == "role").unwrap();
    let role = json!({ "name": "role", "verdict": "ok", "finding": "the server is a primary", "fix": null });
    assert_eq!(*healthy, role);
}
