//! Tests of `probe`, which runs the commands of the other scripts on keys that no semaphore has,
//! and leaves nothing behind.

use std::collections::BTreeSet;

use redis_semaphore::ScriptRegistry;

use super::{Scripts, Timed, has_sharded_channels, semaphore_scripts};

/// Returns the commands that failed, with the server's error for each.
fn probe(semaphore: &mut Scripts, arguments: &str) -> Vec<(String, String)> {
    redis::from_redis_value(semaphore.call("probe", arguments).unwrap()).unwrap()
}

fn code(name: &str) -> String {
    let source = ScriptRegistry::embedded().script(name).unwrap().source();
    let lines = source.lines().map(|line| line.split_once("--").map_or(line, |(code, _)| code));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the command names in quotes, such as 'ZADD', but not 'wait'.
fn commands(source: &str) -> BTreeSet<&str> {
    let is_command = |text: &&str| {
        text.len() > 3 && text.bytes().all(|b| b.is_ascii_uppercase()) && *text != "WITHSCORES"
    };
    source.split('\'').skip(1).step_by(2).filter(is_command).collect()
}

#[test]
fn probe_tries_every_command_of_the_other_scripts() {
    let probe = code("probe");
    let tried = commands(&probe);
    for name in semaphore_scripts() {
        let code = code(name);
        let used = commands(&code);
        assert!(used.contains("TIME") && used.contains("ZMSCORE"), "{name}: {used:?}");
        let untried: Vec<_> = used.difference(&tried).filter(|word| **word != "LIMIT").collect();
        assert!(untried.is_empty(), "{name} uses {untried:?}, which `probe` does not try");
    }
}

#[test]
fn probe_with_all_rights_reports_no_failure_and_leaves_no_keys() {
    let mut semaphore = Timed::start();
    let mut listener = semaphore.listen("client");
    assert_eq!(probe(&mut semaphore, "P client"), []);
    // The empty message belongs to no request.
    assert_eq!(listener.message(), "");
    assert_eq!(probe(&mut semaphore, "N client"), []);
    listener.expect_silence(&mut semaphore);
    assert_eq!(semaphore.command::<i64>("DBSIZE"), 0);
}

#[test]
fn probe_reports_spublish_if_the_server_has_no_sharded_channels() {
    let mut semaphore = Timed::start();
    let failed = probe(&mut semaphore, "S client");
    let names: Vec<_> = failed.iter().map(|(name, _)| name.as_str()).collect();
    let expected: &[&str] = match has_sharded_channels(&mut semaphore) {
        true => &[],
        false => &["PUBSUB", "SPUBLISH"],
    };
    assert_eq!(names, expected, "{failed:?}");
    assert_eq!(semaphore.command::<i64>("DBSIZE"), 0);
}

/// A failed probe must leave no keys, because clients repeat a failed probe.
#[test]
fn a_failed_probe_names_the_command_and_leaves_no_keys() {
    let mut semaphore = Timed::start();
    let mut admin = Scripts::new(semaphore.server.connect(), "unused");
    let code = code("probe");
    let mut tried = commands(&code);
    // The words left out are options, a command for sharded channels, and subcommands.
    tried.retain(|word| !["LIMIT", "BYLEX", "SPUBLISH", "NUMSUB", "SHARDNUMSUB"].contains(word));
    assert!(tried.len() > 15, "{tried:?}");
    for command in tried {
        let rules = format!("reset on nopass ~* &* +@all -{}", command.to_lowercase());
        admin.command::<()>(&format!("ACL SETUSER limited {rules}"));
        semaphore.command::<()>("AUTH limited any");
        let failed = probe(&mut semaphore, "P client");
        assert!(failed.iter().all(|(name, _)| name == command), "without {command}: {failed:?}");
        assert!(!failed.is_empty(), "without {command}");
        assert_eq!(admin.command::<Vec<String>>("KEYS *"), [""; 0], "without {command}");
    }
}
