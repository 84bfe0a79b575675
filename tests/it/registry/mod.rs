//! Tests of the script registry: a user's own folder, missing and circular includes, and a server
//! that does not know a script.

mod functions;

use redis_semaphore::include_dir::{self, Dir, include_dir};
use redis_semaphore::{Error, ScriptRegistry};

use test_support::server::{Server, shared_admin_url, unique_name};

static GOOD: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/registry/good");
static BROKEN: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/registry/broken");

#[test]
fn includes_are_inserted_once_and_in_order_without_head_comments() {
    let registry = ScriptRegistry::from_dir(&GOOD).unwrap();
    let names: Vec<&str> = registry.scripts().map(|script| script.name()).collect();
    assert_eq!(names, ["plain", "sum"], "files in folders are no scripts");
    let sum = registry.script("sum").unwrap();
    assert_eq!(sum.source().matches("local function add").count(), 1);
    assert!(sum.source().find("function add") < sum.source().find("function total"));
    assert!(sum.source().starts_with("local function add(a, b)\n  -- Both are numbers.\n"));
    assert!(sum.source().contains("end\n--[[ Of\na list. ]]\nlocal function total"));
    assert_eq!(sum.keys(), ["numbers"]);
    assert_eq!(sum.arguments(), ["first", "others"]);
    assert_eq!(registry.script("plain").unwrap().keys(), [""; 0]);
}

#[test]
fn from_dir_reports_the_problem_of_a_broken_script_folder() {
    for (folder, expected) in [
        ("missing", "missing/a.lua includes missing/lib/nowhere.lua: the last of these is missing"),
        (
            "circle",
            "circle/lib/b.lua includes circle/lib/c.lua includes circle/lib/b.lua: the last of \
             these includes itself",
        ),
        ("numbers", "should be ARGV[2] and a name"),
        ("latin1", "is not UTF-8"),
    ] {
        let dir = BROKEN.get_dir(folder).unwrap();
        match ScriptRegistry::from_dir(dir) {
            Err(Error::Script(message)) => {
                assert!(message.contains(expected), "{folder}: {message}")
            }
            other => panic!("{folder}: {other:?}"),
        }
    }
}

#[test]
fn the_embedded_scripts_can_be_read() {
    assert!(ScriptRegistry::embedded().scripts().count() >= 6);
}

#[tokio::test]
async fn the_registry_runs_user_scripts_and_reports_failures() {
    let registry = ScriptRegistry::from_dir(&GOOD).unwrap();
    let client = redis::Client::open(shared_admin_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    // The script is not loaded, so the first call sends its source.
    let sum: i64 =
        registry.run(&mut connection, "sum", &[unique_name()], &[1, 2, 3]).await.unwrap();
    assert_eq!(sum, 6);
    registry.load(&mut connection).await.unwrap();
    let refused = registry.run::<_, String, i64, i64>(&mut connection, "nothing", &[], &[]).await;
    assert!(matches!(refused, Err(Error::Script(_))), "{refused:?}");
    let refused = registry.run::<_, String, &str, i64>(&mut connection, "sum", &[], &["x"]).await;
    assert!(matches!(refused, Err(Error::Redis(_))), "{refused:?}");
}

/// After SCRIPT FLUSH, a restart or a failover, only the first call takes one more round trip.
#[tokio::test]
async fn a_script_that_the_server_lost_is_sent_again_in_one_more_round_trip() {
    let server = Server::start();
    let registry = ScriptRegistry::from_dir(&GOOD).unwrap();
    let client = redis::Client::open(server.admin_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    registry.load(&mut connection).await.unwrap();
    redis::cmd("SCRIPT").arg("FLUSH").exec_async(&mut connection).await.unwrap();
    redis::cmd("CONFIG").arg("RESETSTAT").exec_async(&mut connection).await.unwrap();
    for _ in 0..3 {
        let sum: i64 = registry.run(&mut connection, "sum", &["numbers"], &[1, 2]).await.unwrap();
        assert_eq!(sum, 3);
    }
    assert_eq!(["evalsha", "eval", "script|load"].map(|command| server.calls(command)), [3, 1, 0]);
}
