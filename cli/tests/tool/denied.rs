//! Tests that the CLI sends no command that is denied to the user of `docs/production.md`.

use test_support::acl::{self, denied};
use test_support::server::Server;

use crate::support::tool::{Outcome, tool};
use crate::support::unique_name;

fn succeeds(url: &str, arguments: &[&str]) {
    let mut command = tool(arguments);
    command.env("REDIS_URL", url);
    let outcome = Outcome::of(command);
    assert_eq!(outcome.status, Some(0), "{arguments:?}: {outcome:?}");
}

#[test]
fn the_documented_users_are_denied_no_command() {
    let (server, name) = (Server::start_with(&["--appendonly", "yes"]), unique_name());
    acl::set_user(&mut server.connect(), acl::LOOKER, &acl::looker_rules()[0]);
    for arguments in [
        &["run", &*name, "--limit", "1", "--", "true"][..],
        &["limit", &name, "2"],
        &["limit", &name, "clear"],
        &["inspect", &name],
    ] {
        succeeds(&server.url(), arguments);
        assert_eq!(denied(&server), [""; 0], "{arguments:?}");
    }
    // Servers before 7.0 report no rights, so the doctor tries commands that are denied.
    if server.is_older_than_7() {
        return;
    }
    for arguments in [&["ls"][..], &["inspect", &name], &["doctor", "--read-only"]] {
        succeeds(&server.url_of(acl::LOOKER), arguments);
        assert_eq!(denied(&server), [""; 0], "{arguments:?}");
    }
}
