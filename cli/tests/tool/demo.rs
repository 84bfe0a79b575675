//! Tests which server options `demo` accepts or rejects.

use crate::support::server::Server;
use crate::support::tool::{Outcome, tool};

#[test]
fn the_demo_runs_as_a_user_limited_to_keys_under_the_prefix() {
    let server = Server::start();
    server.run("ACL SETUSER teacher on >geheim ~mine* &mine* +@all");
    server.run("ACL SETUSER default off");
    let mut command = tool(&["--user", "teacher", "--prefix", "mine[1]", "demo"]);
    command.env("REDIS_URL", &server.url).env("REDIS_PASSWORD", "geheim");
    let shown = Outcome::of(command);
    assert_eq!((shown.status, &*shown.stderr), (Some(0), ""), "{shown:?}");
    assert_eq!(shown.stdout.matches('✓').count(), 4, "{shown:?}");
    // The demo has deleted its keys, although its prefix contains characters that have a meaning in
    // patterns.
    let admin = redis::Client::open(server.url_of("teacher", "geheim")).unwrap();
    let left: Vec<String> =
        redis::cmd("KEYS").arg("*").query(&mut admin.get_connection().unwrap()).unwrap();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_demo_fails_without_a_single_reachable_server() {
    let url = "redis://127.0.0.1:1/";
    for options in [
        &["--url", url, "--cluster"][..],
        &["--url", url, "--sentinel", "jobs"],
        &["--url", url, "--url", url],
    ] {
        Outcome::of(tool(&[options, &["demo"]].concat())).fails(2, "demo needs a single server");
    }
    Outcome::of(tool(&["--url", "nowhere", "demo"])).fails(2, "--url (REDIS_URL): ");
    Outcome::of(tool(&["--url", url, "demo"])).fails(69, "nothing listens there");
}
