//! The show runs for itself in `.ci/run`.

use std::process::Command;

#[test]
fn it_only_helps_when_asked_for_help() {
    let mut quickstart = Command::new(env!("CARGO_BIN_EXE_quickstart"));
    let help = quickstart.arg("--help").env("REDIS_URL", "redis://127.0.0.1:1/").output().unwrap();
    assert_eq!(help.status.code(), Some(0), "{help:?}");
    assert!(!help.stdout.is_empty() && help.stderr.is_empty(), "{help:?}");
}
