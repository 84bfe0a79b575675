//! Tests in which a holder crashes, and many waiters are dead, too. The first live waiter gets the
//! permit as soon as the lease expires, and few clients call `wake` without effect.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use redis_semaphore::{Permit, ScriptRegistry, Semaphore, SemaphoreClient, SemaphoreClientBuilder};
use tokio::task::JoinSet;

use test_support::child::{self, Process, say};
use test_support::observer::{Observer, connected, eventually, in_time, passed};
use test_support::scripts::{Scripts, id};
use test_support::server::{Server, shared_url, unique_name};

/// The time allowed after the expiry of the lease.
const PROMPT: Duration = Duration::from_millis(300);
/// The interval between two heartbeats, a third of this time, is longer than `PROMPT`.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(6);
const LEASE: Duration = Duration::from_secs(10);

/// Waiters that are separate clients: each is subscribed over its own connection.
struct Waiters {
    connections: Vec<TcpStream>,
}

impl Waiters {
    /// Queues `count` clients with `requests` requests each.
    fn queue(server: &Server, name: &str, count: usize, requests: usize) -> Self {
        let mut scripts = Scripts::new(server.connect(), name);
        let queue = |number| {
            // The name of the client contains the semaphore's name, because all semaphores on a
            // server share the channels.
            let client = format!("{name}.dead{number}");
            let connection = subscribe(server.port, &format!("sem:wake:{client}"));
            let mut arguments =
                ["declare_if_unset", "1", &HEARTBEAT_TIMEOUT.as_millis().to_string()]
                    .map(String::from)
                    .to_vec();
            for request in 0..requests {
                let id = id("P", &client, 1, 30_000, &format!("r{request}"));
                arguments.extend([id, "wait".to_owned()]);
            }
            scripts.integers("acquire", &arguments);
            connection
        };
        Self { connections: (0..count).map(queue).collect() }
    }

    fn die(&mut self) {
        self.connections.clear();
    }
}

fn subscribe(port: u16, channel: &str) -> TcpStream {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(connection, "SUBSCRIBE {channel}\r\n").unwrap();
    // The reply to the subscription ends with a number and a line feed.
    let mut said = Vec::new();
    while !said.ends_with(b":1\r\n") {
        let mut some = [0; 200];
        let count = connection.read(&mut some).unwrap();
        said.extend_from_slice(&some[..count]);
    }
    connection
}

fn builder() -> SemaphoreClientBuilder {
    SemaphoreClient::builder().heartbeat_timeout(HEARTBEAT_TIMEOUT)
}

fn build(client: &SemaphoreClient, name: &str) -> Semaphore {
    client.semaphore(name).limit(1).lease(LEASE).build().unwrap()
}

/// The maximum delay of this process's timers. A busy machine delays timers.
#[derive(Clone, Default)]
struct Lag(Arc<AtomicU64>);

impl Lag {
    fn watch() -> Self {
        let lag = Self::default();
        let watched = lag.clone();
        tokio::spawn(async move {
            loop {
                let began = Instant::now();
                tokio::time::sleep(Duration::from_millis(5)).await;
                watched.0.fetch_max(began.elapsed().as_millis() as u64, Ordering::Relaxed);
            }
        });
        lag
    }

    fn most(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// Returns the time from the expiry of a lease until this grant, both by the server's clock.
fn after(end: i64, permit: &Permit) -> Duration {
    Duration::from_micros(permit.fencing_token().saturating_sub(end as u64 * 1000))
}

/// Returns the time at which the lease of the only permit expires on the server.
fn lease_end(server: &Server, name: &str) -> i64 {
    let key = format!("sem:{{{name}}}:permits");
    let mut connection = server.connect();
    let permits: Vec<(String, i64)> = redis::cmd("ZRANGE")
        .arg(key)
        .arg("(0")
        .arg("+inf")
        .arg("BYSCORE")
        .arg("WITHSCORES")
        .query(&mut connection)
        .unwrap();
    assert_eq!(permits.len(), 1);
    permits[0].1
}

/// The dead waiters in front of the live waiter.
#[derive(Debug, Clone, Copy)]
struct Dead {
    processes: usize,
    requests: usize,
    /// If true, the dead waiters die after the live waiter has joined the queue. If false, they die
    /// before the live waiter joins the queue.
    dies_later: bool,
    /// Whether the connections stay open, like a stopped process's connections.
    is_silent: bool,
}

/// Queues one live waiter behind the dead waiters. Returns the time between the expiry of the lease
/// and the waiter's grant.
async fn one_behind(
    server: &Arc<Server>,
    holders: &SemaphoreClient,
    number: usize,
    dead: Dead,
) -> Duration {
    let name = format!("one-{number}");
    let holder = in_time("the permit", build(holders, &name).acquire()).await.unwrap();
    let (processes, requests) = (dead.processes, dead.requests);
    let (of, its_name) = (server.clone(), name.clone());
    let queued = move || Waiters::queue(&of, &its_name, processes, requests);
    let mut waiters = tokio::task::spawn_blocking(queued).await.unwrap();
    let alive = connected(builder(), &server.url()).await;
    let wait = || tokio::spawn(build(&alive, &name).request().acquire());
    let early = dead.dies_later.then(wait);
    if early.is_some() {
        let observer = Observer::of(build(holders, &name));
        observer.sees(1, (processes * requests) as u64 + 1).await;
    }
    if !dead.is_silent {
        waiters.die();
    }
    let wait = early.unwrap_or_else(wait);
    // After the detach, nothing refreshes the lease.
    let _moved = in_time("the refresh", async {
        holder.refresh().await.unwrap();
        holder.detach()
    })
    .await;
    let end = lease_end(server, &name);
    let permit = in_time("the permit", wait).await.unwrap().unwrap();
    let late = after(end, &permit);
    permit.release().await.unwrap();
    alive.shutdown().await;
    late
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_waiter_behind_dead_waiters_gets_the_permit_at_lease_expiry() {
    let (server, lag) = (Arc::new(Server::start()), Lag::watch());
    let holders = connected(builder(), &server.url()).await;
    let one = Dead { processes: 1, requests: 300, dies_later: true, is_silent: false };
    let many = |processes, requests| Dead { processes, requests, ..one };
    let mut scenes = vec![one, many(10, 1), many(200, 1), many(300, 1), many(40, 30)];
    scenes.extend(scenes.clone().into_iter().map(|scene| Dead { dies_later: false, ..scene }));
    scenes.push(Dead { is_silent: true, ..many(300, 1) });
    let scenes = scenes.into_iter().enumerate();
    let run = async |(number, scene)| (one_behind(&server, &holders, number, scene).await, scene);
    let found = join_all(scenes.map(run)).await;
    println!("{found:#?}, timers were late by {:?}", lag.most());
    assert!(found.iter().all(|(late, _)| *late < PROMPT + lag.most()), "{found:#?}");
}

fn count_wakes(server: &Server) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let sha1 = ScriptRegistry::embedded().script("wake").unwrap().sha1().to_owned();
    let mut connection = server.connect();
    let packed = redis::cmd("MONITOR").get_packed_command();
    connection.send_packed_command(&packed).unwrap();
    let counted = count.clone();
    // The thread runs until the server ends.
    std::thread::spawn(move || {
        while let Ok(reply) = connection.recv_response() {
            let line: String = redis::from_redis_value(reply).unwrap();
            if line.contains(&sha1) {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    count
}

async fn connect(server: &Server, count: usize) -> Vec<SemaphoreClient> {
    let url = server.url();
    // On a busy machine, an attempt to connect may fail.
    let one = async |_| loop {
        if let Ok(client) = builder().connect(&url).await {
            return client;
        }
    };
    stream::iter(0..count).map(one).buffer_unordered(4).collect().await
}

async fn queue_live(
    server: &Server,
    name: &str,
    count: usize,
) -> (Vec<SemaphoreClient>, JoinSet<Permit>) {
    let (all, mut waits) = (connect(server, count).await, JoinSet::new());
    for client in &all {
        let semaphore = build(client, name);
        waits.spawn(async move { semaphore.acquire().await.unwrap() });
    }
    (all, waits)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_live_waiters_call_wake_when_a_lease_expires_behind_dead_waiters() {
    const MANY: usize = 1000;
    let (server, lag) = (Server::start_with(&["--maxclients", "9000"]), Lag::watch());
    let holders = connected(builder(), &server.url()).await;
    let holder = build(&holders, "many").acquire().await.unwrap();
    let mut dead = Waiters::queue(&server, "many", MANY, 1);
    let (alive, mut waits) = queue_live(&server, "many", MANY).await;
    let observer = Observer::of(build(&holders, "many"));
    let all_wait = async || observer.look().await.queued;
    eventually("all wait", all_wait, |queued| *queued as usize >= 2 * MANY).await;
    let wakes = count_wakes(&server);
    dead.die();
    holder.refresh().await.unwrap();
    let _moved = holder.detach();
    let end = lease_end(&server, "many");
    let before = wakes.load(Ordering::Relaxed);
    let permit = in_time("the permit", waits.join_next()).await.unwrap().unwrap();
    let late = after(end, &permit);
    passed(Instant::now() + Duration::from_secs(1)).await;
    let calls = wakes.load(Ordering::Relaxed) - before;
    println!("{late:?} late, {calls} calls of wake; timers were late by {:?}", lag.most());
    assert!(late < PROMPT + lag.most(), "{late:?}");
    assert!(calls <= 100, "{calls} calls");
    waits.shutdown().await;
    for client in alive {
        client.shutdown().await;
    }
}

/// With a rate limit, leases expire all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_start_of_a_rate_limit_causes_few_wake_calls() {
    const STARTS: usize = 60;
    let server = Server::start();
    let lease = Duration::from_millis(500);
    let all = connect(&server, 100).await;
    let wakes = count_wakes(&server);
    let mut starts = JoinSet::new();
    for client in &all {
        let starting = client.semaphore("starts").limit(5).lease(lease).let_expire_on_drop(true);
        let starting = starting.build().unwrap();
        starts.spawn(async move { starting.acquire().await.unwrap().let_expire().await.unwrap() });
    }
    let began = Instant::now();
    for _ in 0..STARTS {
        in_time("the next start", starts.join_next()).await.unwrap().unwrap();
    }
    let calls = wakes.load(Ordering::Relaxed) / STARTS;
    println!("{calls} calls of wake for each of {STARTS} starts, in {:?}", began.elapsed());
    assert!(calls <= 40, "{calls} calls for each start");
    starts.shutdown().await;
    for client in all {
        client.shutdown().await;
    }
}

/// This is not a test, but a process that holds a permit and has 300 waiting requests.
#[tokio::test]
async fn a_process_of_another_test() {
    let Some(name) = child::role() else {
        return;
    };
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let semaphore =
        client.semaphore(&name).limit(1).lease(Duration::from_millis(3000)).build().unwrap();
    let permit = semaphore.acquire().await.unwrap();
    let waits: Vec<_> = (0..300).map(|_| tokio::spawn(semaphore.request().acquire())).collect();
    let queued = async || semaphore.inspect().await.unwrap().queued;
    eventually("all wait", queued, |queued| *queued == 300).await;
    say("ready");
    permit.lost().await;
    drop(waits);
}

#[tokio::test]
async fn a_killed_process_with_many_waits_delays_others_only_until_lease_expiry() {
    let (url, name, lag) = (shared_url(), unique_name(), Lag::watch());
    let mut crowded = Process::start("semaphore::dead_waiters::a_process_of_another_test", &name);
    assert_eq!(crowded.next().await.as_deref(), Some("ready"));
    let client = SemaphoreClient::connect(&url).await.unwrap();
    let semaphore = client.semaphore(&name).limit(1).build().unwrap();
    let wait = tokio::spawn(semaphore.request().acquire());
    Observer::of(semaphore).sees(1, 301).await;
    crowded.kill();
    let mut connection = test_support::server::connect(&url);
    let key = format!("sem:{{{name}}}:permits");
    let ends: Vec<(String, i64)> = redis::cmd("ZRANGE")
        .arg(key)
        .arg("(0")
        .arg("+inf")
        .arg("BYSCORE")
        .arg("WITHSCORES")
        .query(&mut connection)
        .unwrap();
    let permit = in_time("the permit", wait).await.unwrap().unwrap();
    let late = after(ends[0].1, &permit);
    println!("{late:?}");
    assert!(late < PROMPT + lag.most(), "{late:?}");
}
