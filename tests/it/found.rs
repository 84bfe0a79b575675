//! What independent testers found, each kept as a test.

use std::time::{Duration, Instant};

use redis_semaphore::{Error, Permit, Semaphore, Semaphores};
use tokio::task::JoinHandle;

use crate::support::observer::{Observer, eventually, in_time};
use crate::support::proxy::{Flow, Proxy};
use crate::support::server::{Server, shared_admin_url, shared_url, unique_name};

fn start_waiting(semaphore: &Semaphore) -> JoinHandle<Result<Permit, Error>> {
    let semaphore = semaphore.clone();
    tokio::spawn(async move { semaphore.acquire().await })
}

/// The message of a grant arrives after that permit was lost, and after the server has said
/// "queued" again: it is not about a permit that is held.
#[tokio::test]
async fn an_old_message_is_not_a_new_grant() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let observer = Observer::new(&server.url(), "old", 1).await;
    let direct = Semaphores::connect(&server.url()).await.unwrap();
    let other = direct.semaphore("old").limit(1).build().unwrap();
    let holder = other.acquire().await.unwrap();
    let semaphores =
        Semaphores::builder().liveness(Duration::from_secs(1)).connect(&proxy.url()).await.unwrap();
    let lease = Duration::from_millis(400);
    let semaphore = semaphores.semaphore("old").limit(1).lease(lease).build().unwrap();
    let waiting = start_waiting(&semaphore);
    let id = observer.sees(1, 1).await.waiters[0].id.clone();

    // Its turn comes and goes, and it hears nothing, neither messages nor replies.
    proxy.messages(Flow::Hold);
    proxy.requests(Flow::Hold);
    holder.release().await.unwrap();
    assert_eq!(observer.sees(1, 0).await.holders[0].id, id);
    let next = in_time("the next one's turn", other.acquire()).await.unwrap();
    // Now it asks again and is queued; then the old message arrives.
    proxy.requests(Flow::Pass);
    observer.sees(1, 1).await;
    proxy.messages(Flow::Pass);
    // Two more signs of life, and still it does not believe that it holds.
    let elapsed = Instant::now();
    let passed = async || elapsed.elapsed();
    eventually("it has asked again", passed, |passed| *passed > Duration::from_millis(700)).await;
    assert!(!waiting.is_finished(), "it was handed the place of {}", next.id());
    next.release().await.unwrap();
    in_time("its turn", waiting).await.unwrap().unwrap().release().await.unwrap();
}

/// The server refuses the first write of the script that hands off: then nobody may have been told.
#[tokio::test]
async fn a_refused_write_tells_nobody() {
    let server = Server::start();
    let mut admin = server.connect();
    let semaphores = Semaphores::connect(&server.url()).await.unwrap();
    let semaphore = semaphores.semaphore("refused").limit(1).build().unwrap();
    let observer = Observer::new(&server.url(), "refused", 1).await;
    let holder = semaphore.acquire().await.unwrap();
    let waiting = start_waiting(&semaphore);
    observer.sees(1, 1).await;
    let replicas = |number: u32| ["min-replicas-to-write".to_owned(), number.to_string()];
    redis::cmd("CONFIG").arg("SET").arg(&replicas(1)).exec(&mut admin).unwrap();
    let refused = semaphore.set_limit(2).await.unwrap_err();
    assert!(refused.to_string().contains("NOREPLICAS"), "{refused}");
    let now = observer.sees(1, 1).await;
    assert_eq!((now.limit, now.runtime_limit), (1, None));
    redis::cmd("CONFIG").arg("SET").arg(&replicas(0)).exec(&mut admin).unwrap();
    assert!(!waiting.is_finished());
    holder.release().await.unwrap();
    in_time("its turn", waiting).await.unwrap().unwrap().release().await.unwrap();
}

/// A subscription that is left on the old primary hears what the new one publishes, but is not
/// counted there: nothing may be said to it that is not so.
#[tokio::test]
async fn a_subscriber_of_a_replica_is_not_told_of_grants_that_were_not_made() {
    let primary = Server::start();
    let replica = Server::start_with(&["--replicaof", "127.0.0.1", &primary.port.to_string()]);
    let name = unique_name();
    let on_primary = Semaphores::connect(&primary.url()).await.unwrap();
    let semaphore = on_primary.semaphore(&name).limit(1).build().unwrap();
    let holder = semaphore.acquire().await.unwrap();
    let (permits, channel) = (format!("sem:{{{name}}}:permits"), "sem:wake:left-behind");
    // A client in another language, subscribed at the replica.
    let mut listener = replica.connect();
    let subscribe = redis::cmd("SUBSCRIBE").arg(channel).get_packed_command();
    listener.send_packed_command(&subscribe).unwrap();
    listener.recv_response().unwrap();
    let mut scripts = crate::support::scripts::Scripts::new(primary.connect(), &name);
    let stranger = crate::support::scripts::word("P", "left-behind", 1, 30_000, "stranger");
    let reply = scripts.ok("acquire", &format!("declared 1 10000 {stranger} wait"));
    assert_eq!(reply[3], 2, "queued");
    holder.release().await.unwrap();
    // What is published now arrives after anything that was published before.
    let publish = |text: &str| {
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(channel).arg(text).exec(&mut primary.connect()).unwrap();
    };
    let synced = async || {
        let mut exists = redis::cmd("EXISTS");
        let exists = exists.arg(permits.replace("permits", "state"));
        exists.query::<i64>(&mut replica.connect()).ok()
    };
    eventually("the replica follows", synced, |exists| *exists == Some(1)).await;
    publish("end of test");
    let reply = listener.recv_response().unwrap();
    let (_, _, text): (String, String, String) = redis::from_redis_value(reply).unwrap();
    assert_eq!(text, "end of test");
    assert!(semaphore.try_acquire().await.unwrap().is_some());
}

/// Waits dropped while the maintenance asks for them again: a word may be given back twice, by the drop
/// and by the answer. No other word in that batch may suffer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_dropped_at_any_moment_leave_nothing() {
    let (url, name) = (shared_url(), unique_name());
    let observer = Observer::new(&url, &name, 5).await;
    let builder = Semaphores::builder().liveness(Duration::from_millis(100));
    let semaphores = builder.connect(&url).await.unwrap();
    let semaphore = semaphores.semaphore(&name).limit(5).build().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..40_u64 {
        let semaphore = semaphore.clone();
        tasks.spawn(async move {
            for turn in 0..150 {
                let patience = Duration::from_micros((task * 7919 + turn * 104_729) % 40_000);
                match semaphore.acquire_timeout(patience).await {
                    Ok(permit) => drop(permit),
                    Err(Error::Timeout { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
    }
    in_time("the last task", tasks.join_all()).await;
    observer.sees(0, 0).await;
}

#[tokio::test]
async fn durations_without_end_are_no_reason_to_panic() {
    let (url, name) = (shared_url(), unique_name());
    let builder = Semaphores::builder().outage_tolerance(Duration::MAX);
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let semaphores = builder
        .liveness(Duration::from_millis(300))
        .response_timeout(Duration::from_millis(100))
        .connect(&proxy.url())
        .await
        .unwrap();
    let semaphore = semaphores.semaphore(&name).limit(1).max_hold(Duration::MAX).build().unwrap();
    let holder = semaphore.acquire().await.unwrap();
    let waiting = start_waiting(&semaphore);
    let observer = Observer::new(&server.url(), &name, 1).await;
    observer.sees(1, 1).await;
    proxy.refuse_connections(true);
    proxy.cut_all();
    // An outage of several signs of life.
    let started = Instant::now();
    let passed = async || started.elapsed();
    eventually("an outage", passed, |passed| *passed > Duration::from_millis(700)).await;
    proxy.refuse_connections(false);
    holder.release().await.unwrap();
    in_time("its turn", waiting).await.unwrap().unwrap().release().await.unwrap();

    let refused = Semaphores::builder().response_timeout(Duration::MAX).connect(&url).await;
    assert!(matches!(refused, Err(Error::Invalid { what: "response_timeout", .. })));
    let semaphores = Semaphores::connect(&url).await.unwrap();
    let semaphore = semaphores.semaphore(&name).limit(1).build().unwrap();
    semaphore.acquire_timeout(Duration::MAX).await.unwrap().release().await.unwrap();
}

/// Many semaphores wait in one process, and Redis goes silent: each wait ends in time, not one
/// after the other.
#[tokio::test]
async fn many_semaphores_that_wait_end_together() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let direct = Semaphores::connect(&server.url()).await.unwrap();
    let semaphores = Semaphores::builder()
        .liveness(Duration::from_millis(300))
        .response_timeout(Duration::from_millis(500))
        .outage_tolerance(Duration::from_secs(5))
        .connect(&proxy.url())
        .await
        .unwrap();
    let (mut holders, mut waits) = (Vec::new(), tokio::task::JoinSet::new());
    for number in 0..50 {
        let name = format!("wait-{number}");
        holders.push(direct.semaphore(&name).limit(1).build().unwrap().acquire().await.unwrap());
        let semaphore = semaphores.semaphore(&name).limit(1).build().unwrap();
        let observer = direct.semaphore(&name).limit(1).build().unwrap();
        waits.spawn(async move { semaphore.acquire().await });
        let queued = async || observer.inspect().await.unwrap().queued;
        eventually("it waits", queued, |queued| *queued == 1).await;
    }
    proxy.replies(Flow::Swallow);
    // One after the other they would need 25 seconds.
    let ended = in_time("the end of all waits", waits.join_all()).await;
    assert!(ended.iter().all(|wait| matches!(wait, Err(Error::Unavailable { .. }))));
}

#[tokio::test]
async fn what_no_script_has_written_is_no_holder() {
    let (url, name) = (shared_url(), unique_name());
    let observer = Observer::new(&url, &name, 2).await;
    let mut connection = crate::support::server::connect(&shared_admin_url());
    let permits = format!("sem:{{{name}}}:permits");
    let far = 9_000_000_000_000_i64;
    redis::cmd("ZADD").arg(&permits).arg(far).arg(b"other:\xff").exec(&mut connection).unwrap();
    let now = observer.look().await;
    assert!(now.holders.is_empty(), "{now:?}");
    redis::cmd("DEL").arg(&permits).exec(&mut connection).unwrap();
}

/// The server names one request that is too heavy, and refuses the whole call. The others must not
/// wait until each of thousands has been refused by itself.
#[tokio::test]
async fn many_requests_that_are_too_heavy_hold_nobody_up() {
    let server = Server::start();
    let semaphores = Semaphores::connect(&server.url()).await.unwrap();
    let semaphore = semaphores.semaphore("heavy").limit(3).build().unwrap();
    drop(semaphore.acquire().await.unwrap());
    let calls = || commands(&server, "evalsha");
    let before = calls();
    let mut heavy = tokio::task::JoinSet::new();
    for weight in 0..3000 {
        let semaphore = semaphore.clone();
        heavy.spawn(async move { semaphore.try_acquire_many(4 + weight % 2).await });
    }
    let good = in_time("a permit", semaphore.acquire()).await.unwrap();
    for refused in heavy.join_all().await {
        assert!(
            matches!(refused, Err(Error::TooHeavy { weight: 4 | 5, limit: 3, .. })),
            "{refused:?}"
        );
    }
    good.release().await.unwrap();
    let calls = calls() - before;
    assert!(calls < 50, "{calls} calls");
}

/// How often a command was called, as the server counts.
fn commands(server: &Server, name: &str) -> u64 {
    let info: String = redis::cmd("INFO").arg("commandstats").query(&mut server.connect()).unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

/// A refresh that hangs has more patience than a short lease lasts: renewals must not wait for it.
#[tokio::test]
async fn a_refresh_that_hangs_costs_no_other_permit() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let semaphores = Semaphores::connect(&proxy.url()).await.unwrap();
    let lease = Duration::from_millis(2500);
    let semaphore = semaphores.semaphore("hang").limit(9).lease(lease).build().unwrap();
    let permits = [semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap()];
    let asked = semaphore.acquire().await.unwrap();
    proxy.requests(Flow::Swallow);
    let mut refresh = Box::pin(asked.refresh());
    let since = Instant::now();
    let swallowed = async || since.elapsed();
    tokio::select! {
        _ = &mut refresh => {}
        _ = eventually("a renewal was due", swallowed, |passed| *passed > lease / 3) => {}
    }
    proxy.requests(Flow::Pass);
    let passed = async || since.elapsed();
    eventually("two leases have passed", passed, |passed| *passed > lease * 2).await;
    for permit in permits {
        assert!(!permit.is_lost());
        permit.release().await.unwrap();
    }
}

/// Nobody polls the future of a try while its permit's lease runs out.
#[tokio::test]
async fn a_try_that_was_left_alone_answers_with_a_permit_that_is_held() {
    let semaphores = Semaphores::connect(&shared_url()).await.unwrap();
    let lease = Duration::from_millis(100);
    let semaphore = semaphores.semaphore(unique_name()).limit(1).lease(lease).build().unwrap();
    semaphore.acquire().await.unwrap().release().await.unwrap();
    let mut left = Box::pin(semaphore.try_acquire());
    tokio::select! {
        biased;
        _ = &mut left => panic!("Redis cannot have answered yet"),
        () = std::future::ready(()) => {}
    }
    let (observer, since) = (semaphore.clone(), Instant::now());
    let held = async || (observer.inspect().await.unwrap().last_token > 1, since.elapsed());
    eventually("the lease has run out", held, |(_, passed)| *passed > lease * 2).await;
    let permit = left.await.unwrap().unwrap();
    assert!(!permit.is_lost());
}

/// A runtime may end with releases under way: the maintenance must not take that for a panic of theirs.
#[test]
fn a_runtime_that_ends_with_releases_under_way_ends_quietly() {
    static PANICS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let is_ours =
            info.location().is_some_and(|location| location.file().contains("src/worker"));
        PANICS.fetch_add(usize::from(is_ours), std::sync::atomic::Ordering::Relaxed);
        before(info);
    }));
    for _ in 0..50 {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let semaphores = Semaphores::connect(&shared_url()).await.unwrap();
            let semaphore = semaphores.semaphore(unique_name()).limit(100).build().unwrap();
            for _ in 0..20 {
                drop(semaphore.acquire().await.unwrap());
            }
        });
    }
    assert_eq!(PANICS.load(std::sync::atomic::Ordering::Relaxed), 0);
}

/// A sign of life that is repeated after an outage may be that of a permit by then, handed over by
/// message: it must neither bring it back once it is lost, nor keep the process's connections.
#[tokio::test]
async fn a_sign_of_life_that_comes_late_brings_back_no_permit_and_keeps_nothing() {
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let observer = Observer::new(&server.url(), "late", 1).await;
    let lease = Duration::from_millis(2500);
    let semaphores = Semaphores::builder()
        .response_timeout(Duration::from_secs(1))
        .liveness(Duration::from_millis(1500));
    let semaphores = semaphores.connect(&proxy.url()).await.unwrap();
    let semaphore = semaphores.semaphore("late").limit(1).lease(lease).build().unwrap();
    let elsewhere = Semaphores::connect(&server.url()).await.unwrap();
    let held = elsewhere.semaphore("late").limit(1).build().unwrap().acquire().await.unwrap();
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await }
    });
    observer.sees(1, 1).await;
    proxy.commands(Flow::Swallow);
    // Another call is under way, so that the sign of life must wait for it, and goes out later.
    let in_front = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire_timeout(Duration::from_millis(1600)).await }
    });
    let since = Instant::now();
    let passed = async || since.elapsed();
    let due = Duration::from_millis(600);
    eventually("the sign of life is due", passed, |passed| *passed > due).await;
    held.release().await.unwrap();
    let permit = in_time("the permit", waiting).await.unwrap().unwrap();
    assert!(in_front.await.unwrap().is_err());
    permit.lost().await;
    observer.sees(0, 0).await;
    proxy.commands(Flow::Pass);
    // Now the maintenance gets through again.
    let other = semaphores.semaphore("another").limit(1).build().unwrap();
    let again = async || other.try_acquire().await.is_ok();
    eventually("the outage is over", again, |again| *again).await;
    let back = Instant::now();
    let holders = async || (observer.look().await.held, back.elapsed());
    let over = |(held, passed): &(u64, Duration)| {
        assert_eq!(*held, 0, "a lost permit is held again");
        *passed > lease
    };
    eventually("nothing has come back", holders, over).await;
    drop((permit, semaphore, other, semaphores));
    let listeners = async || {
        let mut pubsub = redis::cmd("PUBSUB");
        let channels: Vec<String> =
            pubsub.arg("CHANNELS").arg("sem:wake:*").query(&mut server.connect()).unwrap();
        channels.len()
    };
    // The observer's and the other process's.
    eventually("its channel is gone", listeners, |channels| *channels == 2).await;
}
