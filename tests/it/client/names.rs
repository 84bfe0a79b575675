//! Tests that `names` returns the names of all semaphores, even if slots move or servers fail over.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use redis_semaphore::{ConnectErrorKind, Error, SemaphoreClient};

use test_support::cluster::Cluster;
use test_support::errors::kind_of;
use test_support::observer::{eventually, in_time};
use test_support::proxy::Proxy;
use test_support::replicated::Pair;
use test_support::server::Server;

/// With this many keys, the scan takes many steps.
const OTHERS: usize = 50_000;

fn server() -> Server {
    let server = Server::start();
    ["+scan", "+dbsize"].iter().for_each(|right| server.grant(right));
    server
}

fn fill(server: &Server, count: usize) {
    let script = "for i = 1, ARGV[1] do redis.call('SET', 'other:' .. i, '') end";
    redis::cmd("EVAL").arg(script).arg(0).arg(count).exec(&mut server.connect()).unwrap();
}

async fn use_once(client: &SemaphoreClient, name: &str) {
    let semaphore = client.semaphore(name).limit(1).build().unwrap();
    semaphore.acquire().await.unwrap().release().await.unwrap();
}

async fn names(client: &SemaphoreClient) -> Vec<String> {
    in_time("the names", client.names()).await.unwrap().names
}

#[tokio::test]
async fn names_finds_semaphores_with_special_characters_in_names_and_prefixes() {
    let mut server = server();
    let rules: Vec<_> = test_support::acl::documented_rules()
        .iter()
        .map(|rule| if rule.starts_with('~') { "~*".to_owned() } else { rule.clone() })
        .chain(["+scan", "+dbsize", "&*"].map(str::to_owned))
        .collect();
    server.set_user(&rules);
    fill(&server, OTHERS);
    let mut admin = server.connect();
    for strange in ["sem:{}:state", "sem:{a{b}:state", "sem:{c}:state:x", "semi:{d}:state", "sem:e"]
    {
        redis::cmd("SET").arg(strange).arg("").exec(&mut admin).unwrap();
    }
    let all = ["*", "[a-z]", "a b", "printer", "z?", "ä\\"];
    for prefix in ["sem", "s*m", "[s]em?", r"s\em", "shop:sem"] {
        let client =
            SemaphoreClient::builder().prefix(prefix).connect(&server.url()).await.unwrap();
        assert_eq!(names(&client).await, [""; 0], "{prefix}");
        for name in all.iter().rev() {
            use_once(&client, name).await;
        }
        assert_eq!(names(&client).await, all, "{prefix}");
    }
    let client = SemaphoreClient::connect(&server.url()).await.unwrap();
    let found = client.names().await.unwrap();
    let keys: u64 = redis::cmd("DBSIZE").query(&mut admin).unwrap();
    assert_eq!(found.keys, Some(keys));
    assert!(found.elapsed > Duration::ZERO);
}

#[tokio::test]
async fn names_returns_all_names_although_the_connection_is_cut_during_the_scan() {
    let server = server();
    fill(&server, OTHERS);
    let proxy = Proxy::start(server.port).await;
    let client = SemaphoreClient::connect(&proxy.url()).await.unwrap();
    let all: BTreeSet<String> = (0..20).map(|number| format!("job-{number}")).collect();
    for name in &all {
        use_once(&client, name).await;
    }
    for _ in 0..10 {
        let (passed, accepted) = (proxy.passed_requests(), proxy.accepted());
        let searching = tokio::spawn({
            let client = client.clone();
            async move { client.names().await }
        });
        let some_steps = async {
            while proxy.passed_requests() < passed + 10 {
                tokio::task::yield_now().await;
            }
        };
        in_time("the first steps", some_steps).await;
        assert!(!searching.is_finished());
        proxy.cut_commands();
        let found = in_time("the names", searching).await.unwrap().unwrap();
        assert!(found.names.iter().eq(&all), "{:?}", found.names);
        assert!(proxy.accepted() > accepted, "it was not cut in the middle");
    }
}

#[tokio::test]
async fn names_returns_an_error_if_the_server_is_killed() {
    let mut server = server();
    fill(&server, OTHERS);
    let client = SemaphoreClient::connect(&server.url()).await.unwrap();
    server.kill();
    let refused = in_time("a reply", client.names()).await.unwrap_err();
    assert_eq!(kind_of(&refused), Some(ConnectErrorKind::Refused), "{refused}");
    assert!(refused.is_transient(), "{refused}");
}

/// The client connected before the failover, when the other server was the primary.
#[tokio::test]
async fn names_reads_the_new_primary_after_a_failover() {
    let pair = Pair::start();
    pair.servers.iter().for_each(|server| server.grant("+scan"));
    let client = SemaphoreClient::builder().connect_primary_of(pair.urls()).await.unwrap();
    use_once(&client, "before").await;
    assert_eq!(names(&client).await, ["before"]);
    pair.is_in_step();
    pair.promote(1);
    let others = SemaphoreClient::connect(&pair.servers[1].url()).await.unwrap();
    use_once(&others, "after").await;
    pair.demote(0, 1);
    assert_eq!(names(&client).await, ["after", "before"]);
}

async fn cluster() -> Option<Cluster> {
    let cluster = Cluster::start(2, false).await?;
    for node in &cluster.nodes {
        ["+scan", "+dbsize", "+cluster|nodes"].iter().for_each(|right| node.grant(right));
    }
    Some(cluster)
}

#[tokio::test]
async fn names_reads_all_primaries_of_a_cluster() {
    let Some(cluster) = cluster().await else { return };
    let client = SemaphoreClient::builder().connect_cluster([&*cluster.urls()[0]]).await.unwrap();
    let mut all = [cluster.name_at(0), cluster.name_at(1), cluster.name_at(0)];
    for name in &all {
        use_once(&client, name).await;
    }
    all.sort_unstable();
    assert_eq!(names(&client).await, all);
    assert_eq!(client.names().await.unwrap().keys, Some(all.len() as u64 * 2));
}

/// Slots move from the node that is scanned last to the node that is scanned first, so the scan may
/// miss a key at both nodes. All slots move in one direction. Otherwise a node may not notice that
/// another node has taken slots, and may take the slots back.
#[tokio::test(flavor = "multi_thread")]
async fn no_name_is_missed_while_slots_move() {
    const NAMES: usize = 40;
    let Some(cluster) = cluster().await else { return };
    let cluster = Arc::new(cluster);
    let client = SemaphoreClient::builder().connect_cluster(cluster.urls()).await.unwrap();
    let mut moving = Vec::new();
    let (mut all, mut slots) = (BTreeSet::new(), BTreeSet::new());
    let from = usize::from(cluster.nodes[0].port < cluster.nodes[1].port);
    while all.len() < NAMES {
        let name = cluster.name_at(from);
        if slots.insert(cluster.run::<u16>(0, &["KEYSLOT", &name])) {
            use_once(&client, &name).await;
            all.insert(name.clone());
            moving.push(name);
        }
    }
    // Slots move while `names` runs. Each call of `names` starts one more move, so the speed of the
    // calls does not matter.
    let (look, looked) = std::sync::mpsc::channel();
    let moved = tokio::task::spawn_blocking({
        let cluster = cluster.clone();
        move || {
            moving.iter().zip(looked).for_each(|(name, ())| cluster.move_slot(name, from, 1 - from))
        }
    });
    while !moved.is_finished() {
        assert!(names(&client).await.iter().eq(&all));
        _ = look.send(());
    }
    moved.await.unwrap();
}

#[tokio::test]
async fn names_returns_an_error_if_a_slot_has_no_node() {
    let Some(cluster) = cluster().await else { return };
    let client = SemaphoreClient::builder().connect_cluster(cluster.urls()).await.unwrap();
    for node in 0..2 {
        // The second node may reject the command, if the slot has no node any more.
        let _: redis::RedisResult<()> =
            redis::cmd("CLUSTER").arg("DELSLOTS").arg(7).query(&mut cluster.connect(node));
    }
    let response = async || client.names().await.map(drop);
    let is_seen = |response: &Result<(), Error>| {
        response.as_ref().is_err_and(|error| kind_of(error) == Some(ConnectErrorKind::NotReady))
    };
    let refused = eventually("CLUSTERDOWN", response, is_seen).await.unwrap_err();
    assert!(refused.to_string().contains("CLUSTERDOWN"), "{refused}");
}
