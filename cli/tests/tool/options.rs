//! Wrong options, and the messages about them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use test_support::folder::Folder;

use crate::support::server::Server;
use crate::support::tool::{Outcome, tool};

#[test]
fn errors_for_wrong_arguments_suggest_the_correct_form() {
    for (arguments, words) in [
        (&["runn"][..], "a similar subcommand exists: 'run'"),
        (&["ls", "--jsn"], "a similar argument exists: '--json'"),
        (&["run", "jobs", "--limit", "1", "true"], "redis-semaphore run NAME -- COMMAND"),
        (&["run", "jobs", "--limit", "x", "--", "true"], "must be a number from 1 to 4294967295"),
        (&["run", "jobs", "--weight", "0", "--", "true"], "must be a number from 1 to 4294967295"),
        (&["load", "--processes", "1001"], "must be a number from 1 to 1000"),
        (
            &["limit", "jobs", "-1"],
            "NUMBER, +NUMBER or clear: must be a number from 0 to 4294967295",
        ),
        (&["run", "jobs", "--timeout", "-1s", "--", "true"], "must not be negative"),
        (&["ls", "--response-timeout", "-1s"], "must not be negative"),
        (
            &["run", "jobs", "--timeout", "--no-wait", "--", "true"],
            "must be a duration such as 30s",
        ),
    ] {
        Outcome::of(tool(arguments)).fails(2, words);
    }
    let other = Outcome::of(tool(&["ls", "a", "b"]));
    assert!(other.status == Some(2) && !other.stderr.contains("COMMAND"), "{other:?}");
    // A name must not begin with a dash, and the command follows the `--`.
    let dash = Outcome::of(tool(&["run", "-x", "--limit", "1", "--", "true"]));
    assert!(dash.status == Some(2) && !dash.stderr.contains("tip"), "{dash:?}");
}

/// The crate humantime interprets 5M as five months.
#[test]
fn months_are_not_mistaken_for_minutes() {
    for arguments in [
        &["run", "jobs", "--timeout", "5M", "--", "true"][..],
        &["run", "jobs", "--lease", "1month", "--", "true"],
        &["run", "jobs", "--grace", "1y", "--", "true"],
        &["run", "jobs", "--per", "1M", "--", "true"],
        &["run", "jobs", "--head-start", "1M", "--", "true"],
        &["load", "--duration", "1M"],
        &["load", "--hold", "1M"],
        &["load", "--lease", "1M"],
        &["top", "--every", "1M"],
        &["exporter", "--timeout", "1M"],
        &["ls", "--response-timeout", "1M"],
    ] {
        Outcome::of(tool(arguments)).fails(2, "minutes are m, as in 5m");
    }
    let mut command = tool(&["ls"]);
    command.env("REDIS_SEMAPHORE_RESPONSE_TIMEOUT", "1M");
    Outcome::of(command).fails(2, "minutes are m, as in 5m");
}

/// The library checks some of the options.
#[test]
fn errors_of_the_library_name_the_cli_option() {
    let server = Server::start();
    for (arguments, words) in [
        (
            &["run", "jobs", "--limit", "1", "--lease", "10days"][..],
            "--lease: must be 500ms to 7days",
        ),
        (&["run", "jobs", "--limit", "1", "--head-start", "2h"], "--head-start: must be"),
        (&["--response-timeout", "0s", "run", "jobs"], "--response-timeout: must be"),
        (&["--prefix", "a_b{", "run", "jobs"], "--prefix: \"a_b{\" has"),
        (
            &["--url", "nowhere", "run", "jobs"],
            "--url (REDIS_URL): it begins with neither redis:// nor unix://",
        ),
    ] {
        server.tool(&[arguments, &["--", "true"]].concat()).fails(2, words);
    }
}

/// A person may put a password into the wrong variable.
#[test]
fn a_wrong_variable_is_named_and_its_value_is_not_shown() {
    for (variable, words) in [
        ("REDIS_CLUSTER", "'--cluster': value was not a boolean"),
        (
            "REDIS_PASSWORD_FILE",
            "--password-file: [the value of REDIS_PASSWORD_FILE]: No such file",
        ),
        ("REDIS_TLS_CA", "--tls-ca: [the value of REDIS_TLS_CA]: No such file"),
        ("REDIS_SEMAPHORE_RESPONSE_TIMEOUT", "[the value of REDIS_SEMAPHORE_RESPONSE_TIMEOUT]"),
    ] {
        let mut command = tool(&["ls"]);
        command.env(variable, "Xq7Zw9");
        let refused = Outcome::of(command);
        refused.fails(2, words);
        assert!(!refused.stderr.contains("Xq7Zw9"), "{refused:?}");
    }
    for variable in ["REDIS_URL", "REDIS_USER", "REDIS_SENTINEL", "REDIS_SEMAPHORE_PREFIX"] {
        let mut command = tool(&["ls"]);
        command.env(variable, OsStr::from_bytes(b"redis://\xff"));
        Outcome::of(command).fails(2, &format!("{variable}: its value is not UTF-8"));
    }
}

#[test]
fn a_password_file_longer_than_16_kib_is_rejected() {
    let folder = Folder::create();
    let file = folder.join("password");
    std::fs::write(&file, "a".repeat(20_000)).unwrap();
    let refused = Outcome::of(tool(&["--password-file", file.to_str().unwrap(), "ls"]));
    refused.fails(2, "it is longer than 16 KiB");
}

/// The CLI would reject a password in an argument.
#[test]
fn url_errors_do_not_recommend_a_password_in_the_url() {
    for url in ["nowhere", "http://jobs", "redis://"] {
        let refused = Outcome::of(tool(&["--url", url, "ls"]));
        refused.fails(2, "a URL looks like redis://");
        assert!(!refused.stderr.contains(":password@"), "{refused:?}");
    }
}
