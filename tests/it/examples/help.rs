//! What examples do when they are asked for help.

use std::process::Command;

use crate::support::example;
use crate::support::server::unique_name;

/// Nobody can connect, and nothing is written: each runs in a folder that must stay empty. All but
/// `axum`, which takes no arguments, and is run by `tests/tower`.
#[test]
fn the_examples_only_help_when_asked_for_help() {
    let folder = std::env::temp_dir().join(unique_name());
    std::fs::create_dir(&folder).unwrap();
    let names = ["assemble", "autocomplete", "hold", "market", "pages"];
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
