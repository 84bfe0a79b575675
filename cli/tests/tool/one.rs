//! `inspect`, `limit` and `revoke`, which work with one semaphore.

use std::collections::BTreeSet;
use std::time::Duration;

use redis_semaphore::Group;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::server::{Server, until_queued};

fn texts<'a>(list: &'a Value, field: &str) -> Vec<&'a str> {
    list.as_array().unwrap().iter().map(|one| one[field].as_str().unwrap()).collect()
}

#[tokio::test]
async fn inspect_shows_holders_then_waiters_in_queue_order() {
    let server = Server::start();
    let client = server.semaphores().await;
    let jobs = client.semaphore("jobs").limit(2).build().unwrap();
    let held = jobs.acquire_many(2).await.unwrap();
    let later = tokio::spawn(jobs.request().acquire());
    until_queued(&jobs, 1).await;
    let ahead = jobs.request().head_start(Duration::from_secs(600)).acquire();
    let ahead = tokio::spawn(ahead);
    until_queued(&jobs, 2).await;

    let outcome = server.tool(&["inspect", "jobs", "--json"]);
    assert_eq!((outcome.status, &*outcome.stderr), (Some(0), ""), "{outcome:?}");
    let now = outcome.json();
    for (field, value) in [
        ("name", json!("jobs")),
        ("limit", json!(2)),
        ("declared_limit", json!(2)),
        ("runtime_limit", json!(null)),
        ("held", json!(2)),
        ("queued", json!(2)),
    ] {
        assert_eq!(now[field], value, "{field}: {now}");
    }
    let holder = &now["holders"][0];
    assert_eq!((&holder["id"], &holder["weight"]), (&json!(held.id()), &json!(2)));
    assert_eq!(holder["client"], "web-1");
    assert!((1..=30_000).contains(&holder["expires_in_ms"].as_u64().unwrap()), "{now}");
    let [first, second] = &now["waiters"].as_array().unwrap()[..] else { panic!("{now}") };
    assert_eq!((&first["position"], &second["position"]), (&json!(1), &json!(2)));
    // A head start does not increase the reported wait.
    let waited = |waiter: &Value| waiter["waited_ms"].as_u64().unwrap();
    assert!(waited(first) <= waited(second) && waited(second) < 600_000, "{now}");
    let text = server.tool(&["inspect", "jobs"]).stdout;
    assert!(text.starts_with("jobs: limit 2 (declared: 2, runtime: none), held 2, queued 2\n"));
    let place = |id: &Value| text.find(id.as_str().unwrap()).unwrap();
    assert!(
        place(&holder["id"]) < place(&first["id"]) && place(&first["id"]) < place(&second["id"])
    );
    ahead.abort();
    later.abort();
}

#[tokio::test]
async fn inspect_shows_all_holders_of_several_pages() {
    const HOLDERS: usize = 2_300;
    let server = Server::start();
    let client = server.semaphores().await;
    let jobs = client.semaphore("jobs").limit(HOLDERS as u32).build().unwrap();
    let mut acquires: JoinSet<_> = (0..HOLDERS).map(|_| jobs.request().acquire()).collect();
    let mut held = Vec::new();
    while let Some(permit) = acquires.join_next().await {
        held.push(permit.unwrap().unwrap());
    }
    let now = server.tool(&["inspect", "jobs", "--json"]).json();
    let shown: BTreeSet<&str> = texts(&now["holders"], "id").into_iter().collect();
    assert_eq!(shown, held.iter().map(|permit| permit.id()).collect());
    assert_eq!(now["holders"].as_array().unwrap().len(), HOLDERS);
}

#[tokio::test]
async fn inspect_shows_the_groups_of_a_semaphore() {
    let server = Server::start();
    let client = server.semaphores().await;
    let jobs = client.semaphore("jobs").limit(3).build().unwrap();
    let held = jobs.request().group(Group::new("a").cap(2)).weight(2).acquire().await.unwrap();
    let other = jobs.acquire().await.unwrap();
    let next = tokio::spawn(jobs.request().group(Group::new("b").share(4)).acquire());
    until_queued(&jobs, 1).await;

    let now = server.tool(&["inspect", "jobs", "--json"]).json();
    assert_eq!(now["waiters"][0]["group"], "b", "{now}");
    let groups: BTreeSet<_> = now["holders"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["group"])
        .map(Value::to_string)
        .collect();
    assert_eq!(groups, ["\"a\"".to_owned(), "null".to_owned()].into());
    let mut now = server.tool(&["inspect", "jobs", "--groups", "--json"]).json();
    assert!(now["groups"][0]["waited_ms"].take().is_u64(), "{now}");
    let group = |name: Value, held: u32, queued: u32, share: Value| {
        json!({
            "group": name, "held": held, "queued": queued, "waited_ms": null, "share": share,
            "cap": null, "runtime_cap": null,
        })
    };
    let groups = [
        group(json!("b"), 0, 1, json!(4)),
        group(json!("a"), 2, 0, json!(null)),
        group(json!(null), 1, 0, json!(null)),
    ];
    assert_eq!(now["groups"], json!(groups));
    assert_eq!((&now["held"], &now["holders"]), (&json!(3), &json!(null)));
    let text = server.tool(&["inspect", "jobs", "--groups"]).stdout;
    let words =
        |line: usize| text.lines().nth(line).unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!(words(2), ["GROUP", "HELD", "QUEUED", "WAITED", "SHARE", "CAP", "RUNTIME", "CAP"]);
    assert_eq!((words(3)[0], words(4)), ("b", vec!["a", "2", "0", "-", "-", "-", "-"]));
    assert_eq!(words(5), ["(none)", "1", "0", "-", "-", "-", "-"]);
    drop((held, other));
    next.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_group_is_paused_and_continued() {
    let server = Server::start();
    let cap = |cap| server.tool(&["limit", "jobs", "--group", "a", "--cap", cap]);
    cap("0").fails(1, "semaphore jobs does not exist");
    let client = server.semaphores().await;
    let jobs = client.semaphore("jobs").limit(3).build().unwrap();
    drop(jobs.acquire().await.unwrap());
    let paused = cap("0");
    assert_eq!(paused.stdout, "jobs: runtime cap of group a: 0\n");
    let note = "group a holds no permit and does not wait: check the name\n";
    assert!(paused.stderr.ends_with(note), "{}", paused.stderr);
    assert!(jobs.request().group("a").try_acquire().await.unwrap().is_none());
    let now = server.tool(&["inspect", "jobs", "--groups", "--json"]).json();
    assert_eq!(now["groups"][0]["runtime_cap"], 0, "{now}");
    let continued = cap("clear");
    assert_eq!(continued.stdout, "jobs: runtime cap of group a: none\n");
    assert_eq!(continued.stderr, "", "the group has a runtime cap, so its name is known");
    assert!(jobs.request().group("a").try_acquire().await.unwrap().is_some());
    cap("-1").fails(2, "must be a number from 0");
    server.tool(&["limit", "jobs", "--group", "a"]).fails(2, "--cap <N|clear>");
    server.tool(&["limit", "jobs", "5", "--group", "a", "--cap", "1"]).fails(2, "--cap");
    for change in ["5", "+1", "clear"] {
        server.tool(&["limit", "jobs", change, "--group", "a"]).fails(2, "--group");
    }
    assert_eq!(server.tool(&["limit", "jobs"]).stdout, "jobs: limit 3 (declared)\n");
}

#[tokio::test]
async fn a_limit_is_shown_changed_and_cleared() {
    let server = Server::start();
    server.tool(&["inspect", "jobs"]).fails(1, "semaphore jobs does not exist");
    server.tool(&["limit", "jobs"]).fails(1, "semaphore jobs does not exist");
    server.tool(&["limit", "jobs", "clear"]).fails(1, "semaphore jobs does not exist");
    assert_eq!(redis::cmd("DBSIZE").query::<u64>(&mut server.connect()).unwrap(), 0);
    let jobs = server.semaphores().await.semaphore("jobs").limit(3).build().unwrap();
    let _held = jobs.acquire().await.unwrap();
    let limit = |arguments: &[&str]| {
        let outcome = server.tool(&[&["limit", "jobs"], arguments].concat());
        assert_eq!((outcome.status, &*outcome.stderr), (Some(0), ""), "{outcome:?}");
        outcome.stdout
    };
    assert_eq!(limit(&[]), "jobs: limit 3 (declared)\n");
    assert_eq!(limit(&["5"]), "jobs: limit changed from 3 to 5 (runtime limit; declared: 3)\n");
    assert_eq!(limit(&["+2"]), "jobs: limit changed from 5 to 7 (runtime limit; declared: 3)\n");
    assert_eq!(limit(&[]), "jobs: limit 7 (runtime limit; declared: 3)\n");
    assert_eq!(limit(&["clear"]), "jobs: limit changed from 7 to 3 (declared)\n");
    assert_eq!(limit(&["clear"]), "jobs: limit stays 3 (declared)\n");
    assert_eq!(limit(&["0"]), "jobs: limit changed from 3 to 0 (runtime limit; declared: 3)\n");
    let changed: Value = serde_json::from_str(&limit(&["--json", "9"])).unwrap();
    let expected = json!({
        "name": "jobs", "limit": 9, "declared_limit": 3, "runtime_limit": 9,
        "before": { "limit": 0, "runtime_limit": 0 },
    });
    assert_eq!(changed, expected);
    // The CLI declares no limit.
    assert_eq!(jobs.inspect().await.unwrap().declared_limit, Some(3));
    server.tool(&["limit", "jobs", "4294967295"]);
    server
        .tool(&["limit", "jobs", "+1"])
        .fails(2, "+1 is too large: the effective limit is 4294967295");
    let set = server.tool(&["limit", "undeclared", "2"]);
    assert_eq!(set.status, Some(0));
    let note = "redis-semaphore: semaphore undeclared did not exist before: check the name\n";
    assert_eq!(set.stderr, note);
    let cleared = server.tool(&["limit", "undeclared", "clear"]).stdout;
    assert_eq!(cleared, "undeclared: limit changed from 2 to none\n");
    server.tool(&["limit", "jobs", "many"]).fails(2, "NUMBER, +NUMBER or clear: must be a number");
}

#[tokio::test]
async fn revoke_reports_the_revoked_permit_and_the_possible_overlap() {
    let server = Server::start();
    let jobs = server.semaphores().await.semaphore("jobs").limit(1).build().unwrap();
    let held = jobs.acquire().await.unwrap();
    let outcome = server.tool(&["revoke", "jobs", held.id()]);
    assert_eq!((outcome.status, &*outcome.stderr), (Some(0), ""), "{outcome:?}");
    assert!(outcome.stdout.contains("jobs: the permit was revoked"), "{outcome:?}");
    assert!(outcome.stdout.contains("for up to 10s"), "{outcome:?}");
    assert_eq!(jobs.inspect().await.unwrap().held, 0);
    server.tool(&["revoke", "jobs", held.id()]).fails(1, "no permit or request has this ID");
    server.tool(&["revoke", "jobs", "web-1"]).fails(2, "id: \"web-1\" is not an ID");

    let again = jobs.acquire().await.unwrap();
    let revoked = server.tool(&["revoke", "--json", "jobs", again.id()]).json();
    let expected = json!({
        "name": "jobs", "id": again.id(), "revoked": "permit",
        "overlap_ms": 10_000, "longest_overlap_ms": 30_000,
    });
    assert_eq!(revoked, expected);

    let ten = Duration::from_secs(10);
    let short = server.semaphores().await.semaphore("short").limit(1).lease(ten).build().unwrap();
    let held = short.acquire().await.unwrap();
    // A third of 10 s is rounded up to whole seconds.
    let reported = server.tool(&["revoke", "short", held.id()]).stdout;
    assert!(
        reported.contains("for up to 4s, it and") && reported.contains("for up to 10s if"),
        "{reported}"
    );
}
