//! `ls`: lists all semaphores, or those that match a pattern.

use serde_json::json;
use test_support::acl;
use test_support::cluster::Cluster;

use crate::support::server::{Server, until_queued};
use crate::support::tool::{Outcome, tool};

#[tokio::test]
async fn ls_prints_held_limit_queued_and_wait_of_each_semaphore() {
    let server = Server::start();
    let client = server.semaphores().await;
    let held = client.semaphore("a*b").limit(3).build().unwrap();
    let _two = held.acquire_many(2).await.unwrap();
    let full = client.semaphore("full").limit(1).build().unwrap();
    let _one = full.acquire().await.unwrap();
    let _waits = tokio::spawn(full.request().acquire());
    until_queued(&full, 1).await;

    let outcome = server.tool(&["ls"]);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    let lines: Vec<_> = outcome.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{outcome:?}");
    assert_eq!(lines[0], "NAME  HELD/LIMIT  QUEUED  LONGEST WAIT");
    assert_eq!(lines[1], "a*b   2/3         0");
    assert!(lines[2].starts_with("full  1/1         1       "), "{outcome:?}");
    assert!(outcome.stderr.starts_with("2 of 2 semaphores shown; scanned "), "{outcome:?}");
    let (_, took) = outcome.stderr.split_once(" keys in 0.").unwrap();
    let (_, all_took) = took.split_once(" s; total time ").unwrap();
    assert!(all_took.trim_end().strip_suffix(" s").unwrap().parse::<f64>().is_ok(), "{outcome:?}");

    let outcome = server.tool(&["ls", "--json", "a\\**"]);
    let list = outcome.json();
    let row = json!({ "name": "a*b", "limit": 3, "held": 2, "queued": 0, "longest_wait_ms": null });
    assert_eq!(list["semaphores"], json!([row]));
    assert!(list["keys"].as_u64() > Some(2) && list["scan_ms"].is_u64(), "{list}");
    assert!(list["total_ms"].as_u64() >= list["scan_ms"].as_u64(), "{list}");
    let list = server.tool(&["ls", "--json", "f*"]).json();
    assert!(list["semaphores"][0]["longest_wait_ms"].is_u64(), "{list}");
}

#[tokio::test]
async fn an_unreadable_semaphore_does_not_hide_the_other_semaphores() {
    let server = Server::start();
    let client = server.semaphores().await;
    let jobs = client.semaphore("jobs").limit(1).build().unwrap();
    let _held = jobs.acquire().await.unwrap();
    server.run("HSET sem:{odd}:state version 2");
    let outcome = server.tool(&["ls"]);
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    assert!(
        outcome.stdout.contains("\njobs  1/1") && !outcome.stdout.contains("odd"),
        "{outcome:?}"
    );
    assert!(outcome.stderr.starts_with("1 of 2 semaphores shown; "), "{outcome:?}");
    assert!(outcome.stderr.contains("semaphore odd: ") && outcome.stderr.contains("SEM_VERSION"));
}

#[tokio::test]
async fn a_read_only_user_can_read_all_and_errors_name_the_missing_right() {
    let server = Server::start_with(&["--appendonly", "yes"]);
    acl::set_user(&mut server.connect(), acl::LOOKER, &acl::looker_rules()[0]);
    let client = server.semaphores().await;
    let jobs = client.semaphore("jobs").limit(1).build().unwrap();
    let held = jobs.acquire().await.unwrap();
    let looker = |arguments: &[&str]| server.tool_as("looker", "secret", arguments);
    assert!(looker(&["ls"]).stdout.contains("jobs  1/1"));
    assert!(looker(&["inspect", "jobs"]).stdout.contains(held.id()));
    assert_eq!(looker(&["limit", "jobs"]).stdout, "jobs: limit 1 (declared)\n");
    let doctor = looker(&["doctor"]);
    assert!(doctor.status == Some(1) && doctor.stdout.contains("+zrem"), "{doctor:?}");
    for changes in [&["limit", "jobs", "2"][..], &["revoke", "jobs", held.id()]] {
        looker(changes).fails(69, "the user lacks the right +");
    }
    server.run("ACL SETUSER looker -scan");
    looker(&["ls"]).fails(69, "the user lacks the right +scan");
    assert_eq!(jobs.inspect().await.unwrap().limit, 1);
}

#[tokio::test]
async fn a_list_needs_all_primaries_of_a_cluster_and_says_so() {
    const ADVICE: &str = "a list needs all primaries; `redis-semaphore inspect NAME`";
    let mut cluster = Cluster::form(2, false, &["--cluster-require-full-coverage", "no"]);
    let url = cluster.nodes[0].admin_url();
    let list = |url: &str| Outcome::of(tool(&["--cluster", "--url", url, "ls"]));
    assert_eq!(list(&url).status, Some(0));
    cluster.nodes[1].kill();
    list(&url).fails(69, ADVICE);
    let single = list(&Server::start().url);
    assert!(single.status == Some(69) && !single.stderr.contains(ADVICE), "{single:?}");
}
