//! Tests with programs that end in different ways. When a program has ended, the next process gets
//! its permit. This test has its own `main`, because the end of the main thread matters.

mod ways;

use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use redis_semaphore::{Semaphore, SemaphoreClient, blocking};
use test_support::observer::{connected, until};
use test_support::server::{Server, shared_url, unique_name};

/// The lease is so long that no permit expires during the test.
pub const LEASE: Duration = Duration::from_secs(600);
/// The time limit for a reply, for a grant, and for the end of a program, even on a busy machine.
const SOON: Duration = Duration::from_secs(30);
/// These environment variables pass three values to a child process: the way in which the process
/// ends, the URL, and the name of the semaphore.
const WAY: &str = "REDIS_SEMAPHORE_WAY";
const URL: &str = "REDIS_SEMAPHORE_WAY_URL";
const NAME: &str = "REDIS_SEMAPHORE_WAY_NAME";

fn main() -> ExitCode {
    if let [Ok(way), Ok(url), Ok(name)] = [WAY, URL, NAME].map(std::env::var) {
        return ways::go(&way, &url, &name);
    }
    let chosen: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let is_chosen = |way: &&str| {
        let name = format!("ends::{way}");
        chosen.is_empty() || chosen.iter().any(|part| name.contains(part))
    };
    if std::env::args().any(|arg| arg == "--list") {
        ways::ALL.iter().for_each(|(way, _)| println!("ends::{way}: test"));
        return ExitCode::SUCCESS;
    }
    let tests = ways::ALL.iter().filter(|(way, _)| is_chosen(way));
    let mut passed = 0;
    for (way, status) in tests {
        // Waiting tasks end in random order, so the test is repeated.
        let times = if way.contains("waiters") { 10 } else { 1 };
        (0..times).for_each(|_| next_is_served(way, *status));
        passed += 1;
    }
    for way in ["blocking_drop", "async_drop"].iter().filter(|way| is_chosen(way)) {
        an_outage_holds_up_no_end(way);
        passed += 1;
    }
    let crowds = ["async_crowd", "async_crowd_of_one_thread", "async_hoard"];
    for way in crowds.iter().filter(|way| is_chosen(way)) {
        the_permits_of_many_tasks_are_released_together(way);
        passed += 1;
    }
    println!("test result: ok. {passed} passed; 0 failed; 0 ignored");
    ExitCode::SUCCESS
}

fn start(way: &str, url: &str, name: &str) -> Child {
    program(way, url, name).spawn().unwrap()
}

fn program(way: &str, url: &str, name: &str) -> Command {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.env(WAY, way).env(URL, url).env(NAME, name).env("RUST_BACKTRACE", "0");
    program
}

fn ended(mut program: Child) -> (Option<i32>, Duration) {
    let (started, mut status) = (Instant::now(), None);
    until("the program has ended", || {
        status = program.try_wait().unwrap();
        status.is_some()
    });
    (status.and_then(|status| status.code()), started.elapsed())
}

async fn observer(url: &str, name: &str) -> (SemaphoreClient, Semaphore) {
    let client = connected(SemaphoreClient::builder().response_timeout(SOON), url).await;
    let semaphore = client.semaphore(name).limit(1).lease(LEASE).build().unwrap();
    (client, semaphore)
}

#[tokio::main(flavor = "current_thread")]
async fn next_is_served(way: &str, status: i32) {
    let (url, name) = (shared_url(), unique_name());
    let (client, semaphore) = observer(&url, &name).await;
    let (code, took) = ended(start(way, &url, &name));
    assert_eq!(code, Some(status), "{way}");
    let started = Instant::now();
    let served = semaphore.acquire_timeout(SOON).await;
    let served = served.unwrap_or_else(|error| panic!("after {way}: {error}"));
    let waited = started.elapsed();
    println!("test ends::{way} ... ok ({took:.1?}; the next one waited {waited:.1?})");
    served.release().await.unwrap();
    client.shutdown().await;
}

/// Before a program ends, it waits for Redis, but not forever. The child process pauses the server.
fn an_outage_holds_up_no_end(way: &str) {
    let server = Server::start();
    let (code, took) = ended(start(&format!("{way}_away"), &server.admin_url(), &unique_name()));
    assert_eq!(code, Some(0), "{way}");
    assert!(took < SOON, "{way}: {took:?}");
    println!("test ends::{way} while Redis is away ... ok ({took:.1?})");
}

/// The library delays the end of a program only for a limited time. This time is too short to open
/// one connection for each permit. The log must not report an outage.
fn the_permits_of_many_tasks_are_released_together(way: &str) {
    let server = Server::start();
    let name = unique_name();
    let mut program = program(way, &server.admin_url(), &name);
    let mut program = program.stderr(Stdio::piped()).spawn().unwrap();
    let stderr = program.stderr.take().unwrap();
    let (code, took) = ended(program);
    let log = std::io::read_to_string(stderr).unwrap();
    assert!(code == Some(0) && !log.contains("unavailable"), "{way}: {log}");
    let mut connection = server.connect();
    let info: redis::InfoDict = redis::cmd("INFO").arg("stats").query(&mut connection).unwrap();
    let connections: u64 = info.get("total_connections_received").unwrap();
    assert!(connections < 20, "{way}: {connections} connections");
    let client = blocking::SemaphoreClient::connect(&server.admin_url()).unwrap();
    let semaphore = client.semaphore(&name).existing_limit().build().unwrap();
    assert_eq!(semaphore.inspect().unwrap().held, 0, "{way}");
    println!("test ends::{way} ... ok ({took:.1?}; {connections} connections)");
}
