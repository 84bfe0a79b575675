//! Tests in which clients that call functions share semaphores with clients that call scripts.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redis_semaphore::{ConnectErrorKind, Error, Semaphore, SemaphoreClient};
use tokio::task::JoinSet;

use test_support::acl;
use test_support::cluster::Cluster;
use test_support::errors::kind_of;
use test_support::head::folder;
use test_support::observer::{Observer, eventually, in_time};
use test_support::server::{Server, connect};

/// Returns the documented rights, with the rights for functions instead of the rights for scripts.
fn rules(rules: &[String]) -> Vec<String> {
    let scripts = ["+evalsha", "+eval", "+script|load"];
    let rest = rules.iter().filter(|rule| !scripts.contains(&rule.as_str())).cloned();
    rest.chain(["+fcall", "+function|load"].map(str::to_owned)).collect()
}

/// Starts a server whose user may call functions and no scripts. Returns `None` if the server has
/// no functions.
fn start() -> Option<Server> {
    let mut server = Server::start();
    if server.is_older_than_7() {
        return None;
    }
    server.set_user(&rules(acl::documented_rules()));
    Some(server)
}

async fn by_functions(url: &str) -> SemaphoreClient {
    SemaphoreClient::builder().use_functions().connect(url).await.unwrap()
}

fn build(client: &SemaphoreClient, limit: u32) -> Semaphore {
    client.semaphore("shared").limit(limit).build().unwrap()
}

#[tokio::test]
async fn a_server_without_functions_is_reported_when_connecting() {
    let server = Server::start();
    let connected = SemaphoreClient::builder().use_functions().connect(&server.admin_url()).await;
    if !server.is_older_than_7() {
        connected.unwrap();
        return;
    }
    let refused = connected.unwrap_err();
    assert_eq!(kind_of(&refused), Some(ConnectErrorKind::TooOld), "{refused}");
    let reason = refused.to_string();
    assert!(reason.contains("6.2") && reason.contains("does not support FCALL"), "{reason}");
}

/// Clients that call functions and clients that call scripts take turns, so each kind also grants
/// permits to waiters of the other kind.
#[tokio::test]
async fn function_clients_and_script_clients_keep_the_shared_limit() {
    const TURNS: usize = 40;
    let Some(server) = start() else { return };
    let mut clients = JoinSet::new();
    let inside = Arc::new(AtomicUsize::new(0));
    let by_scripts = SemaphoreClient::connect(&server.admin_url()).await.unwrap();
    let by_functions = by_functions(&server.url()).await;
    for number in 0..12 {
        let semaphore = build(if number % 2 == 0 { &by_scripts } else { &by_functions }, 3);
        let inside = inside.clone();
        clients.spawn(async move {
            for _ in 0..TURNS {
                let permit = semaphore.acquire().await.unwrap();
                assert!(inside.fetch_add(1, Ordering::SeqCst) < 3);
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                permit.release().await.unwrap();
            }
        });
    }
    in_time("all turns", async {
        while let Some(done) = clients.join_next().await {
            done.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn function_clients_and_script_clients_share_one_queue() {
    let Some(server) = start() else { return };
    let by_scripts = SemaphoreClient::connect(&server.admin_url()).await.unwrap();
    let by_functions = by_functions(&server.url()).await;
    let observer = Observer::of(build(&by_functions, 1));
    let held = build(&by_scripts, 1).acquire().await.unwrap();
    let mut waiting = Vec::new();
    for number in 0..6 {
        let semaphore = build(if number % 2 == 0 { &by_scripts } else { &by_functions }, 1);
        waiting.push(tokio::spawn(async move { semaphore.acquire().await.unwrap() }));
        observer.sees(1, number + 1).await;
    }
    held.release().await.unwrap();
    for waiter in waiting {
        let permit = in_time("the next turn", waiter).await.unwrap();
        permit.release().await.unwrap();
    }
}

#[tokio::test]
async fn the_client_loads_the_library_again_after_the_server_lost_it() {
    let Some(server) = start() else { return };
    let semaphore = build(&by_functions(&server.url()).await, 2);
    let permit = semaphore.acquire().await.unwrap();
    redis::cmd("FUNCTION").arg("FLUSH").exec(&mut server.connect()).unwrap();
    permit.release().await.unwrap();
    assert_eq!(libraries(&server), BTreeSet::from(["redis_semaphore".to_owned()]));
}

fn libraries(server: &Server) -> BTreeSet<String> {
    let list: Vec<std::collections::HashMap<String, redis::Value>> =
        redis::cmd("FUNCTION").arg("LIST").query(&mut server.connect()).unwrap();
    let name = |library: &std::collections::HashMap<String, redis::Value>| {
        redis::from_redis_value_ref(&library["library_name"]).unwrap()
    };
    list.iter().map(name).collect()
}

/// Another client may have loaded a newer library. If a library exists, the user does not need the
/// right to load a library.
#[tokio::test]
async fn an_existing_library_is_used_and_not_replaced() {
    let Some(mut server) = start() else { return };
    let ours = std::fs::read_to_string(folder().join("functions.lua")).unwrap();
    let theirs =
        ours.replace("function_name = 'sem_", "description = 'theirs', function_name = 'sem_");
    redis::cmd("FUNCTION").arg("LOAD").arg(theirs).exec(&mut server.connect()).unwrap();
    let mut rules = rules(acl::documented_rules());
    rules.retain(|rule| rule != "+function|load");
    server.set_user(&rules);
    let permit = build(&by_functions(&server.url()).await, 2).acquire().await.unwrap();
    permit.release().await.unwrap();
    let list: redis::Value =
        redis::cmd("FUNCTION").arg("LIST").query(&mut server.connect()).unwrap();
    assert!(format!("{list:?}").contains("theirs"), "{list:?}");
}

#[tokio::test]
async fn connecting_with_functions_names_the_missing_right() {
    let Some(mut server) = start() else { return };
    for lacking in ["+fcall", "+function|load", "+zadd", "~sem:{*"] {
        let mut rules = rules(acl::documented_rules());
        rules.retain(|rule| rule != lacking);
        server.set_user(&rules);
        match SemaphoreClient::builder().use_functions().connect(&server.url()).await {
            Err(Error::Connect { right: Some(right), .. }) => assert_eq!(right, lacking),
            other => panic!("without {lacking}: {other:?}"),
        }
    }
}

/// If memory is full, the server rejects each function whose flags do not allow a call without free
/// memory.
#[tokio::test]
async fn on_a_full_server_functions_can_refresh_and_release_permits() {
    let Some(server) = start() else { return };
    let semaphore = build(&by_functions(&server.url()).await, 2);
    let permit = semaphore.acquire().await.unwrap();
    let mut admin = connect(&server.admin_url());
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(1).exec(&mut admin).unwrap();
    let error = semaphore.acquire().await.unwrap_err();
    assert!(
        matches!(&error, Error::Rejected { .. }) && error.to_string().contains("OOM"),
        "{error}"
    );
    permit.refresh().await.unwrap();
    assert_eq!(semaphore.inspect().await.unwrap().held, 1);
    permit.release().await.unwrap();
    assert_eq!(semaphore.inspect().await.unwrap().held, 0);
}

#[tokio::test]
async fn on_a_full_server_permits_can_be_refreshed_after_the_functions_are_lost() {
    let Some(mut server) = start() else { return };
    let semaphore = build(&by_functions(&server.admin_url()).await, 2);
    let permit = semaphore.acquire().await.unwrap();
    let mut admin = connect(&server.admin_url());
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(1).exec(&mut admin).unwrap();
    redis::cmd("FUNCTION").arg("FLUSH").exec(&mut admin).unwrap();
    permit.refresh().await.unwrap();
    assert_eq!(build(&by_functions(&server.admin_url()).await, 2).inspect().await.unwrap().held, 1);
    permit.release().await.unwrap();
    // A user without the right to run scripts gets an error that names the problem.
    server.set_user(&rules(acl::documented_rules()));
    let refused =
        SemaphoreClient::builder().use_functions().connect(&server.url()).await.unwrap_err();
    assert!(refused.to_string().contains("OOM"), "{refused}");
}

#[tokio::test]
async fn connecting_fails_if_the_functions_differ_from_functions_lua() {
    let Some(server) = start() else { return };
    let ours = std::fs::read_to_string(folder().join("functions.lua")).unwrap();
    let load = |library: &str| {
        let mut redis = server.connect();
        redis::cmd("FUNCTION").arg("FLUSH").exec(&mut redis).unwrap();
        redis::cmd("FUNCTION").arg("LOAD").arg(library).exec(&mut redis).unwrap();
    };
    let other = "redis.register_function('NAME', function() return WHAT end)";
    let other = |library: &str, name: &str, what: &str| {
        format!("#!lua name={library}\n{}", other.replace("NAME", name).replace("WHAT", what))
    };
    for (library, reason) in [
        (other("redis_semaphore", "else", "1"), "Library 'redis_semaphore' already exists"),
        (other("mine", "sem_acquire", "{}"), "\"acquire\" differs from lua/functions.lua"),
        (other("mine", "sem_acquire", "1 + nil"), "\"acquire\" differs from lua/functions.lua"),
        (other("mine", "sem_wake", "1"), "Function sem_wake already exists"),
        (ours.replace("'sem_refresh'", "'sem_other'"), "there is no sem_refresh"),
    ] {
        load(&library);
        match SemaphoreClient::builder().use_functions().connect(&server.url()).await {
            Err(Error::Connect { kind: ConnectErrorKind::Functions, reason: text, .. }) => {
                assert!(text.contains(reason), "{reason}: {text}");
            }
            other => panic!("{reason}: {other:?}"),
        }
    }
}

/// Some functions are removed before they are called.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_succeed_while_the_functions_are_removed_repeatedly() {
    let Some(server) = start() else { return };
    let semaphore = build(&by_functions(&server.url()).await, 2);
    let removed = Arc::new(AtomicUsize::new(0));
    let removing = std::thread::spawn({
        let (mut redis, removed) = (server.connect(), removed.clone());
        move || {
            while removed.load(Ordering::SeqCst) < 20 {
                let libraries: Vec<redis::Value> =
                    redis::cmd("FUNCTION").arg("LIST").query(&mut redis).unwrap();
                if !libraries.is_empty() {
                    redis::cmd("FUNCTION").arg("FLUSH").exec(&mut redis).unwrap();
                    removed.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
    });
    let turns = async {
        while removed.load(Ordering::SeqCst) < 20 {
            semaphore.acquire().await.unwrap().release().await.unwrap();
        }
    };
    in_time("the last removal", turns).await;
    removing.join().unwrap();
}

#[tokio::test]
async fn each_node_of_a_cluster_gets_the_functions() {
    let Some(mut cluster) = Cluster::start(2, false).await else { return };
    for node in &mut cluster.nodes {
        node.set_user(&rules(acl::cluster_rules()));
    }
    let builder = SemaphoreClient::builder().use_functions();
    let client = builder.connect_cluster(cluster.urls()).await.unwrap();
    for node in 0..2 {
        let name = cluster.name_at(node);
        let semaphore = client.semaphore(name).limit(1).build().unwrap();
        let held = semaphore.acquire().await.unwrap();
        let waiting = tokio::spawn({
            let semaphore = semaphore.clone();
            async move { semaphore.acquire().await.unwrap() }
        });
        let queued = async || semaphore.inspect().await.unwrap().queued;
        eventually("queued", queued, |queued| *queued == 1).await;
        held.release().await.unwrap();
        let permit = in_time("its turn", waiting).await.unwrap();
        permit.release().await.unwrap();
    }
}
