//! Checks that the read-only user of `docs/production.md` can only read.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use redis::InfoDict;
use redis_semaphore::{
    ConnectErrorKind, Diagnosis, Error, Group, SemaphoreClient, SemaphoreClientBuilder, Verdict,
};

use test_support::acl;
use test_support::cluster::Cluster;
use test_support::errors::whole;
use test_support::observer::eventually;
use test_support::server::{Server, unique_name};

const ONLY_FOR_LISTS: [&str; 4] = ["+scan", "+dbsize", "+info", "+config|get"];

fn make_looker(server: &Server, rules: &[String]) {
    acl::set_user(&mut server.connect(), acl::LOOKER, rules);
}

fn builder() -> SemaphoreClientBuilder {
    SemaphoreClient::builder().read_only()
}

/// Makes every read-only call on a server with one semaphore that has a holder.
async fn looks(client: &SemaphoreClient, name: &str) {
    let found = client.names().await.unwrap();
    assert_eq!(found.names, [name]);
    assert!(found.keys.is_some());
    let semaphore = client.semaphore(name).existing_limit().build().unwrap();
    let now = semaphore.inspect().await.unwrap();
    assert_eq!((now.limit, now.held, semaphore.limit().await.unwrap()), (2, 1, 2));
    let diagnosis = client.doctor().await.unwrap();
    assert!(!lacks_rights(&diagnosis), "{diagnosis}");
    let mut checks = diagnosis.servers.iter().flat_map(|server| &server.checks);
    assert!(checks.all(|check| check.verdict != Verdict::Unchecked), "{diagnosis}");
}

fn lacks_rights(diagnosis: &Diagnosis) -> bool {
    let mut checks = diagnosis.servers.iter().flat_map(|server| &server.checks);
    checks.any(|check| check.fix.as_ref().is_some_and(|fix| fix.starts_with("ACL")))
}

/// Returns whether the server's log of denied commands is empty. An entry in this log sets off
/// alarms.
fn is_log_empty(server: &Server) -> bool {
    let denied: Vec<redis::Value> =
        redis::cmd("ACL").arg("LOG").query(&mut server.connect()).unwrap();
    denied.is_empty()
}

#[tokio::test]
async fn the_doctor_of_a_read_only_client_requires_only_its_permissions() {
    let server = Server::start();
    make_looker(&server, &acl::looker_rules()[0]);
    let url = server.url_of(acl::LOOKER);
    let diagnosis = builder().connect(&url).await.unwrap().doctor().await.unwrap();
    assert!(!lacks_rights(&diagnosis), "{diagnosis}");
    assert!(is_log_empty(&server));
    let all = SemaphoreClient::builder().for_doctor().connect(&url).await.unwrap();
    let diagnosis = all.doctor().await.unwrap();
    let lacks = |right: &str| diagnosis.to_string().contains(&format!("looker {right}"));
    assert!(lacks("+zrem") && lacks("+persist") && !lacks("+zcard"), "{diagnosis}");
}

#[tokio::test]
async fn the_doctor_of_a_read_only_client_reports_a_missing_permission() {
    let server = Server::start();
    let rules = &acl::looker_rules()[0];
    make_looker(&server, rules);
    let client = builder().connect(&server.url_of(acl::LOOKER)).await.unwrap();
    for lacking in ["+zmscore", "+subscribe"] {
        make_looker(&server, &acl::without(rules, lacking));
        let diagnosis = client.doctor().await.unwrap();
        assert_eq!(diagnosis.worst(), Verdict::Critical, "{diagnosis}");
        assert!(diagnosis.to_string().contains(&format!("looker {lacking}")), "{diagnosis}");
    }
}

/// Checks that every call that writes fails.
async fn changes_nothing(client: &SemaphoreClient, name: &str, id: &str) {
    let semaphore = client.semaphore(name).limit(7).build().unwrap();
    for refused in [
        semaphore.try_acquire().await.map(drop),
        semaphore.set_limit(9).await.map(drop),
        semaphore.clear_limit().await.map(drop),
        semaphore.revoke(id).await.map(drop),
    ] {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, Error::Rejected { .. }), "{refused}");
        assert!(refused.to_string().contains("the user lacks a right"), "{}", whole(&refused));
    }
    let now = semaphore.inspect().await.unwrap();
    assert_eq!((now.limit, now.held, now.queued, now.runtime_limit), (2, 1, 0, None));
    assert_eq!(now.holders[0].id, id);
}

#[tokio::test]
async fn a_read_only_client_may_connect_to_a_replica() {
    let (primary, name) = (Server::start(), unique_name());
    let theirs = SemaphoreClient::connect(&primary.url()).await.unwrap();
    let _permit = theirs.semaphore(&*name).limit(2).build().unwrap().acquire().await.unwrap();
    let replica = Server::start_with(&["--replicaof", "127.0.0.1", &primary.port.to_string()]);
    let client = builder().connect(&replica.url()).await.unwrap();
    let semaphore = client.semaphore(&*name).existing_limit().build().unwrap();
    let held = async || semaphore.inspect().await.map_or(0, |now| now.held);
    eventually("the permit on the replica", held, |held| *held == 1).await;
    let refused = semaphore.set_limit(9).await.unwrap_err();
    assert!(whole(&refused).contains("replica"), "{}", whole(&refused));
}

#[tokio::test]
async fn a_read_only_user_can_make_all_read_only_calls_and_no_changes() {
    let (server, name) = (Server::start(), unique_name());
    make_looker(&server, &acl::looker_rules()[0]);
    let theirs = SemaphoreClient::connect(&server.url()).await.unwrap();
    let theirs = theirs.semaphore(&*name).limit(2).build().unwrap();
    let permit = theirs.acquire().await.unwrap();
    let url = server.url_of(acl::LOOKER);
    let refused = SemaphoreClient::connect(&url).await.unwrap_err();
    assert!(matches!(refused, Error::Connect { right: Some(_), .. }), "{refused}");
    let client = builder().connect(&url).await.unwrap();
    looks(&client, &name).await;
    changes_nothing(&client, &name, permit.id()).await;
    let semaphore = client.semaphore(&*name).limit(7).build().unwrap();
    let refused = semaphore.acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Rejected { .. }), "{refused}");
    permit.release().await.unwrap();
}

/// If `state` was lost, the scripts find the virtual time with other commands.
#[tokio::test]
async fn a_read_only_user_can_inspect_groups() {
    let (server, name) = (Server::start(), unique_name());
    make_looker(&server, &acl::looker_rules()[0]);
    let theirs = SemaphoreClient::connect(&server.url()).await.unwrap();
    let theirs = theirs.semaphore(&*name).limit(2).build().unwrap();
    let request = || theirs.request().group(Group::new("tenant").cap(1)).acquire();
    let _permit = request().await.unwrap();
    let waiting = tokio::spawn(request());
    let client = builder().connect(&server.url_of(acl::LOOKER)).await.unwrap();
    let semaphore = client.semaphore(&*name).existing_limit().build().unwrap();
    let queued = async || semaphore.inspect().await.unwrap().queued;
    eventually("the waiter", queued, |queued| *queued == 1).await;
    for lost in ["", "state"] {
        if !lost.is_empty() {
            let key = format!("sem:{{{name}}}:{lost}");
            redis::cmd("DEL").arg(key).exec(&mut server.connect()).unwrap();
        }
        let groups = semaphore.inspect_groups().await.unwrap();
        assert_eq!((groups.len(), groups[0].held, groups[0].queued), (1, 1, 1), "{groups:?}");
        assert_eq!(semaphore.inspect().await.unwrap().queued, 1);
    }
    assert!(is_log_empty(&server));
    waiting.abort();
}

#[tokio::test]
async fn a_read_only_user_can_make_read_only_calls_but_no_changes_in_a_cluster() {
    let Some(cluster) = Cluster::start(2, false).await else { return };
    cluster.nodes.iter().for_each(|node| make_looker(node, &acl::looker_rules()[1]));
    let name = cluster.name_at(1);
    let theirs = SemaphoreClient::builder().connect_cluster(cluster.urls()).await.unwrap();
    let theirs = theirs.semaphore(&*name).limit(2).build().unwrap();
    let permit = theirs.acquire().await.unwrap();
    let urls = cluster.nodes.iter().map(|node| node.url_of(acl::LOOKER));
    let client = builder().connect_cluster(urls).await.unwrap();
    looks(&client, &name).await;
    changes_nothing(&client, &name, permit.id()).await;
    permit.release().await.unwrap();
}

#[tokio::test]
async fn connecting_names_the_right_that_a_read_only_user_lacks() {
    let server = Server::start();
    let rules = &acl::looker_rules()[0];
    let is_right = |rule: &&String| rule.starts_with(['+', '~', '&']);
    let needed = rules.iter().filter(is_right);
    for lacking in needed.filter(|right| !ONLY_FOR_LISTS.contains(&right.as_str())) {
        make_looker(&server, &acl::without(rules, lacking));
        match builder().connect(&server.url_of(acl::LOOKER)).await {
            Err(Error::Connect { right: Some(right), kind, reason, .. }) => {
                assert_eq!((&right, kind), (lacking, ConnectErrorKind::Permission));
                // HMGET is the first command with a key.
                assert!(!lacking.starts_with('~') || reason.contains("hmget"), "{reason}");
            }
            other => panic!("without {lacking}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn names_reports_a_missing_scan_right_and_omits_keys_without_dbsize() {
    let server = Server::start();
    let rules = &acl::looker_rules()[0];
    make_looker(&server, &acl::without(rules, "+scan"));
    let client = builder().connect(&server.url_of(acl::LOOKER)).await.unwrap();
    let error = client.names().await.unwrap_err();
    assert!(error.to_string().starts_with("cannot use Redis at "), "{error}");
    match error {
        Error::Connect { right: Some(right), kind, .. } => {
            assert_eq!((&*right, kind), ("+scan", ConnectErrorKind::Permission));
        }
        other => panic!("{other:?}"),
    }
    make_looker(&server, &acl::without(rules, "+dbsize"));
    let client = builder().connect(&server.url_of(acl::LOOKER)).await.unwrap();
    assert_eq!(client.names().await.unwrap().keys, None);
}

/// The client retries a denied subscription only once per heartbeat, over the same connection.
#[tokio::test]
async fn a_denied_subscription_is_retried_rarely_and_without_reconnecting() {
    const HEARTBEAT: Duration = Duration::from_millis(200);
    let Some(cluster) = Cluster::start(2, false).await else { return };
    cluster.nodes.iter().for_each(|node| make_looker(node, &acl::looker_rules()[1]));
    let builder = builder().heartbeat_timeout(HEARTBEAT * 3);
    let client = builder
        .connect_cluster(cluster.nodes.iter().map(|node| node.url_of(acl::LOOKER)))
        .await
        .unwrap();
    let semaphore = client.semaphore(cluster.name_at(1)).limit(2).build().unwrap();
    let observer = RefCell::new(cluster.nodes[1].connect());
    let info = |section: &str| -> InfoDict {
        redis::cmd("INFO").arg(section).query(&mut *observer.borrow_mut()).unwrap()
    };
    let connections = || info("stats").get::<u64>("total_connections_received").unwrap();
    let refused = async || {
        let stats: Option<String> = info("commandstats").get("cmdstat_ssubscribe");
        let count = stats.as_deref().and_then(|stats| stats.split("rejected_calls=").nth(1));
        count.map_or(0, |count| count.split(',').next().unwrap().parse::<u32>().unwrap())
    };
    let waiting = tokio::spawn(async move { semaphore.acquire().await });
    eventually("a refusal", refused, |now| *now > 0).await;
    let (connected, began) = (connections(), Instant::now());
    let before = refused().await;
    eventually("more refusals", refused, |now| *now >= before + 3).await;
    assert!(began.elapsed() >= HEARTBEAT, "{:?}", began.elapsed());
    assert_eq!(connections(), connected);
    waiting.abort();
}
