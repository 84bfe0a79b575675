//! The user with only the required rights, created as `docs/production.md` describes. Unless a test
//! needs other rights, each `SemaphoreClient` connects as this user.

use std::sync::LazyLock;

use redis::Connection;

use super::server::Server;

/// The name and the password of the user in the documentation.
pub const USER: &str = "jobs";
pub const PASSWORD: &str = "secret";

pub const LOOKER: &str = "looker";

type Rules = [Vec<String>; 2];

static DOCUMENTED: LazyLock<Rules> = LazyLock::new(|| lines_for(USER));
static OF_LOOKERS: LazyLock<Rules> = LazyLock::new(|| lines_for(LOOKER));

fn lines_for(user: &str) -> Rules {
    let page = include_str!("../../docs/production.md");
    let beginning = format!("ACL SETUSER {user} ");
    let lines = page.split(&beginning).skip(1).map(rules_of);
    lines.collect::<Vec<_>>().try_into().expect("the page has two such lines")
}

fn rules_of(line: &str) -> Vec<String> {
    let (line, _) = line.split_once("```").expect("the line is in a block");
    let rules: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    assert_eq!(rules[..2], ["on", ">secret"], "the rules begin with `on` and the password");
    rules
}

/// Returns the rules after `ACL SETUSER jobs` in the documentation.
pub fn documented_rules() -> &'static [String] {
    &DOCUMENTED[0]
}

pub fn cluster_rules() -> &'static [String] {
    &DOCUMENTED[1]
}

/// Returns the rules after `ACL SETUSER looker`, for a server and for a cluster node.
pub fn looker_rules() -> &'static Rules {
    &OF_LOOKERS
}

pub fn without(rules: &[String], lacking: &str) -> Vec<String> {
    rules.iter().filter(|rule| *rule != lacking).cloned().collect()
}

pub fn set_user(server: &mut Connection, user: &str, rules: &[String]) {
    let mut set = redis::cmd("ACL");
    set.arg("SETUSER").arg(user).arg("reset").arg(rules).exec(server).unwrap();
}

pub fn as_user(url: &str) -> String {
    let place = url.strip_prefix("redis://").expect("a URL that begins with redis://");
    let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
    format!("redis://{USER}:{PASSWORD}@{place}")
}

/// Returns the denied commands, from the server's ACL log and the server's command counters.
pub fn denied(server: &Server) -> Vec<String> {
    let mut admin = server.connect();
    let list: Vec<redis::Value> = redis::cmd("ACL").arg("LOG").query(&mut admin).unwrap();
    let info: String = redis::cmd("INFO").arg("all").query(&mut admin).unwrap();
    let counts = info.lines().filter(|line| {
        let rejected = line.split_once("rejected_calls=").map(|(_, count)| !count.starts_with('0'));
        let denied =
            line.strip_prefix("acl_access_denied_").map(|reported| !reported.ends_with(":0"));
        rejected.or(denied).unwrap_or(false)
    });
    list.iter().map(|entry| format!("{entry:?}")).chain(counts.map(str::to_owned)).collect()
}
