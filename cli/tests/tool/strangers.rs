//! Text from servers and other clients, on a user's screen.

use redis::Commands;
use serde_json::json;
use test_support::acl;

use crate::support::server::Server;
use crate::support::tool::{Outcome, tool};

/// Characters that control a terminal, are invisible, or imitate other text.
pub const STEERING: &str = "\u{9b}2J\u{1b}[2J\u{1b}]0;mine\u{7}\u{85}\r\u{7f}\u{ad}\u{200b}\u{202e}\u{2028}\u{2066}\u{feff}\u{a0}\u{3000}\u{e0041}\u{fff9}\u{378}\u{e000}\u{3164}\u{200d}\u{301}";

pub const NAMES: [&str; 9] = [
    "a",
    "b\u{9b}2J\u{85}\u{ad}",
    "c\u{202e}\u{2066}\u{200b}\u{feff}",
    "d\u{2028}\u{a0}\u{3000}\u{e0041}",
    "e\u{301}",
    "\u{e9}",
    "f\u{3164}\u{378}\u{e000}\u{fff9}",
    "漢字",
    "👩\u{200d}👧",
];

#[track_caller]
pub fn must_not_steer(shown: &str) {
    let is_steering = |c: &char| STEERING.contains(*c) && !c.is_ascii_graphic() && *c != '\r';
    assert_eq!(shown.chars().find(is_steering), None, "{shown:?}");
}

#[track_caller]
fn checked(outcome: Outcome) -> Outcome {
    must_not_steer(&outcome.stdout);
    must_not_steer(&outcome.stderr);
    assert!(!outcome.stdout.contains('\r') && !outcome.stderr.contains('\r'), "{outcome:?}");
    outcome
}

#[tokio::test]
async fn names_and_ids_are_escaped_and_stay_exact_in_json() {
    let server = Server::start();
    let client = server.semaphores().await;
    let mut connection = server.connect();
    let id = format!("P:{STEERING}:1:30000:0123456789abcdef");
    for name in NAMES {
        let semaphore = client.semaphore(name).limit(1).build().unwrap();
        std::mem::forget(semaphore.acquire().await.unwrap());
        let _: () = connection.zadd(format!("sem:{{{name}}}:queue"), &id, 1).unwrap();
        let shown = checked(server.tool(&["inspect", name]));
        assert!(
            shown.status == Some(0) && shown.stdout.contains("\\u{9b}2J\\u{1b}[2J"),
            "{shown:?}"
        );
        let exact = checked(server.tool(&["inspect", "--json", name])).json();
        assert_eq!((&exact["name"], &exact["waiters"][0]["id"]), (&json!(name), &json!(id)));
        for arguments in [
            &["limit", name][..],
            &["limit", name, "3"],
            &["limit", name, "+1"],
            &["limit", name, "clear"],
            &["limit", name, "none"],
            &["revoke", name, "id"],
            &["revoke", name, "P:web-1.1.x:1:30000:0123456789abcdef"],
            &["run", name, "--no-wait", "--limit", "2", "--", "true"],
            &["load", "--name", name, "--weight", "9"],
        ] {
            checked(server.tool(arguments));
        }
    }
    let listed = checked(server.tool(&["ls"]));
    for shown in ["\nb\\u{9b}2J\\u{85}\\u{ad}  ", "\ne\\u{301} ", "\n\u{e9} ", "\n👩\\u{200d}👧 "]
    {
        assert!(listed.stdout.contains(shown), "{shown:?}: {listed:?}");
    }
    let exact = checked(server.tool(&["ls", "--json"])).json();
    let mut names = NAMES;
    names.sort();
    let listed = exact["semaphores"].as_array().unwrap().iter().map(|row| &row["name"]);
    assert_eq!(listed.collect::<Vec<_>>(), names);
}

#[tokio::test]
async fn text_from_the_server_is_escaped_in_errors_and_in_the_log() {
    let server = Server::start();
    let mut connection = server.connect();
    let user = STEERING.replace(|c: char| c.is_whitespace() || c == '\0', "");
    let rules = acl::looker_rules();
    let mut set = redis::cmd("ACL");
    set.arg(&["SETUSER", &user, "on", ">secret"]).arg(&rules[0]).arg("-scan");
    set.exec(&mut connection).unwrap();
    let as_user = |arguments: &[&str]| {
        let mut command = tool(&[&["--user", &user], arguments].concat());
        command.env("REDIS_URL", &server.url).env("REDIS_PASSWORD", "secret");
        command.env("RUST_LOG", "redis_semaphore=trace");
        checked(Outcome::of(command))
    };
    let client = server.semaphores().await;
    for name in NAMES {
        client.semaphore(name).limit(1).build().unwrap().set_limit(1).await.unwrap();
        checked(as_user(&["limit", name]));
        checked(as_user(&["limit", name, "4"]));
        let mut command = tool(&["run", name, "--", "true"]);
        command.env("REDIS_URL", &server.url).env("RUST_LOG", "redis_semaphore=trace");
        let run = checked(Outcome::of(command));
        assert!(run.status == Some(0) && run.stderr.contains("redis_semaphore"), "{run:?}");
    }
    as_user(&["ls"]).fails(69, "+scan");
    as_user(&["doctor"]);
    // The address of the replica's primary contains this text.
    let replica = format!("{STEERING}\nfine       role         all is well");
    redis::cmd("REPLICAOF").arg(replica).arg(1).exec(&mut connection).unwrap();
    let reported = checked(server.tool(&["doctor"]));
    assert!(reported.stdout.contains("the server is a replica of \\u{9b}2J"), "{reported:?}");
    assert!(!reported.stdout.contains("all is well"), "{reported:?}");
    checked(server.tool(&["limit", "a", "7"]));
}

#[tokio::test]
async fn a_pattern_or_name_without_a_match_gets_advice() {
    let server = Server::start();
    let empty = server.tool(&["ls"]);
    assert!(empty.stderr.contains("no semaphore exists under the prefix \"sem\""), "{empty:?}");
    let client = server.semaphores().await;
    client.semaphore("mailer").limit(1).build().unwrap().set_limit(1).await.unwrap();
    for (pattern, advice) in [
        ("{*", "no name matches \"{*\": names contain no braces: write \"*\"\n"),
        ("{mailer}", "names contain no braces: write \"mailer\"\n"),
        ("Mail*", "there is \"mailer\": upper and lower case differ\n"),
        ("jobs", "no name matches \"jobs\"\n"),
        ("\u{9b}*", "no name matches \"\\u{9b}*\"\n"),
    ] {
        let listed = server.tool(&["ls", pattern]);
        assert_eq!(listed.status, Some(0), "{listed:?}");
        assert!(listed.stderr.ends_with(advice), "{listed:?}");
    }
    assert_eq!(server.tool(&["ls", "mail*"]).stderr.lines().count(), 1);
    server
        .tool(&["inspect", "a\\u{9b}2"])
        .fails(2, "escaped character: in Bash, write $'a\\U0000009b2'\n");
    for name in ["{mailer}", "sem:{mailer}:state"] {
        server.tool(&["inspect", name]).fails(2, ": write \"mailer\"\n");
    }
    // These names are no copies of a key, so no name is suggested.
    for name in ["deploy-{prod}", "{prod}-deploy"] {
        server.tool(&["inspect", name]).fails(2, "no braces or control characters\n");
        assert!(server.tool(&["ls", name]).stderr.ends_with(": names contain no braces\n"));
    }
}
