//! The example `doctor`, and what examples do when they are asked for help.

use std::process::{Command, Output};

use super::Patient;
use crate::support::example;
use crate::support::server::{shared_admin_url, unique_name};

fn run_example(url: &str) -> (Option<i32>, String, String) {
    let doctor = Command::new(example::program("doctor")).env("REDIS_URL", url).output();
    let Output { status, stdout, stderr } = doctor.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[tokio::test]
async fn the_example_prints_what_the_guide_shows() {
    let (status, output, errors) = run_example(&shared_admin_url());
    assert_eq!((status, errors.as_str()), (Some(1), ""), "{output}");
    let (server, checks) = output.split_once('\n').unwrap();
    assert!(server.starts_with("127.0.0.1:"), "{server}");
    let guide = include_str!("../../../docs/guide.md");
    let block = format!(
        "$ scripts/with-redis cargo run --quiet --example doctor\n127.0.0.1:6379, redis 8.0.6\n\
         {checks}```"
    );
    assert!(guide.contains(&block), "docs/guide.md has no such block:\n{block}");
}

#[tokio::test]
async fn the_exit_status_of_the_example_tells_whether_there_is_a_danger() {
    let mut patient = Patient::healthy().await;
    let url = patient.server.admin_url();
    let (status, output, errors) = run_example(&url);
    assert_eq!((status, errors.as_str()), (Some(0), ""), "{output}");
    assert!(output.lines().skip(1).all(|line| line.starts_with("fine ")), "{output}");
    patient.run("CONFIG SET appendfsync no");
    let (status, output, _) = run_example(&url);
    assert_eq!(status, Some(0));
    assert!(output.contains("\nhint "), "{output}");
    patient.server.kill();
    let (status, output, errors) = run_example(&url);
    assert_eq!((status, output.as_str()), (Some(2), ""));
    assert!(errors.starts_with("doctor: cannot connect to Redis at "), "{errors}");
    assert!(errors.contains("nothing listens there: start the server"), "{errors}");
}

/// Nobody can connect, and nothing is written: each runs in a folder that must stay empty.
#[test]
fn the_examples_only_help_when_asked_for_help() {
    let folder = std::env::temp_dir().join(unique_name());
    std::fs::create_dir(&folder).unwrap();
    for name in
        ["assemble", "autocomplete", "doctor", "hold", "market", "pages", "textbook", "turns"]
    {
        let mut command = Command::new(example::program(name));
        let command = command.arg("--help").current_dir(&folder);
        let help = command.env("REDIS_URL", "redis://127.0.0.1:1/").output().unwrap();
        assert_eq!(help.status.code(), Some(0), "{name}: {help:?}");
        assert!(!help.stdout.is_empty() && help.stderr.is_empty(), "{name}: {help:?}");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "{name} has written something");
    }
    std::fs::remove_dir(&folder).unwrap();
}
