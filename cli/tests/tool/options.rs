//! Wrong options, and the messages about them.

use crate::support::server::Server;
use crate::support::tool::{Outcome, tool};

#[test]
fn what_is_wrong_is_told_with_what_is_right() {
    for (arguments, words) in [
        (&["runn"][..], "a similar subcommand exists: 'run'"),
        (&["ls", "--jsn"], "a similar argument exists: '--json'"),
        (&["run", "jobs", "--limit", "1", "true"], "redis-semaphore run NAME -- COMMAND"),
        (&["run", "jobs", "--limit", "x", "--", "true"], "must be a number from 1 to 4294967295"),
        (&["run", "jobs", "--weight", "0", "--", "true"], "must be a number from 1 to 4294967295"),
        (&["load", "--processes", "1001"], "must be a number from 1 to 1000"),
    ] {
        Outcome::of(tool(arguments)).fails(2, words);
    }
    let other = Outcome::of(tool(&["ls", "a", "b"]));
    assert!(other.status == Some(2) && !other.stderr.contains("COMMAND"), "{other:?}");
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
fn options_are_told_by_their_names() {
    let server = Server::start();
    for (arguments, words) in [
        (&["run", "jobs", "--limit", "1", "--lease", "10days"][..], "--lease: must be"),
        (&["run", "jobs", "--limit", "1", "--head-start", "2h"], "--head-start: must be"),
        (&["--response-timeout", "0s", "run", "jobs"], "--response-timeout: must be"),
        (&["--prefix", "a_b{", "run", "jobs"], "--prefix: \"a_b{\" has"),
        (
            &["--url", "nowhere", "run", "jobs"],
            "--url (REDIS_URL): it does not begin with redis://",
        ),
    ] {
        server.tool(&[arguments, &["--", "true"]].concat()).fails(2, words);
    }
}

/// The CLI would reject a password in an argument.
#[test]
fn no_url_with_a_password_is_recommended() {
    for url in ["nowhere", "http://jobs", "redis://"] {
        let refused = Outcome::of(tool(&["--url", url, "ls"]));
        refused.fails(2, "a URL looks like redis://");
        assert!(!refused.stderr.contains(":password@"), "{refused:?}");
    }
}
