//! Tests that the examples print help, and do nothing else, if help is requested. The scripts that
//! test the clients must do the same.

use std::path::Path;
use std::process::Command;

use test_support::example;
use test_support::server::unique_name;

/// The examples cannot connect, and they write nothing: each example runs in a folder that must
/// stay empty.
#[test]
fn each_example_only_prints_its_help_with_the_option_help() {
    let folder = std::env::temp_dir().join(unique_name());
    std::fs::create_dir(&folder).unwrap();
    let names = ["assemble", "autocomplete", "axum", "hold", "market", "pages"];
    for name in names.iter().chain(&["reqwest", "sqlx", "textbook", "turns"]) {
        let mut command = Command::new(example::program(name));
        let command = command.arg("--help").current_dir(&folder);
        let help = command.env("REDIS_URL", "redis://127.0.0.1:1/").output().unwrap();
        assert_eq!(help.status.code(), Some(0), "{name}: {help:?}");
        assert!(!help.stdout.is_empty() && help.stderr.is_empty(), "{name}: {help:?}");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "{name} has written something");
    }
    std::fs::remove_dir(&folder).unwrap();
}

#[test]
fn each_client_test_script_only_prints_its_help_with_the_option_help() {
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients");
    let folders = std::fs::read_dir(&clients).unwrap().map(|entry| entry.unwrap().path());
    let mut tests: Vec<_> =
        folders.map(|folder| folder.join("test")).filter(|test| test.exists()).collect();
    assert!(tests.len() > 3, "{tests:?}");
    tests.push(clients.join("test"));
    for test in tests {
        let mut help = Command::new(&test);
        let help = help.arg("--help").env("REDIS_URL", "redis://127.0.0.1:1/").output().unwrap();
        assert_eq!(help.status.code(), Some(0), "{test:?}: {help:?}");
        assert!(help.stdout.starts_with(b"usage: ") && help.stderr.is_empty(), "{help:?}");
    }
}
