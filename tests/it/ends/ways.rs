//! The programs of this test. Each program acquires a permit, and ends in one of several ways.

use std::error::Error;
use std::process::{self, ExitCode};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use futures_util::future::try_join_all;
use redis_semaphore::{SemaphoreClient, SemaphoreClientBuilder, blocking};
use tokio::runtime::{Builder, Runtime};

use crate::LEASE;

/// The number of tasks that hold a permit when their runtime ends.
const CROWD: u32 = 500;
/// A number of permits that needs several calls.
const HOARD: u32 = 5_000;

type Outcome = Result<(), Box<dyn Error>>;

/// Each way to end, with its exit status. A panic has the status 101.
pub const ALL: [(&str, i32); 21] = [
    ("blocking_scope", 0),
    ("blocking_drop", 0),
    ("blocking_question_mark", 1),
    ("blocking_panic", 101),
    ("blocking_exit", 3),
    ("blocking_static", 0),
    ("blocking_static_in_a_thread", 0),
    ("blocking_among_async", 0),
    ("async_scope", 0),
    ("async_scope_of_one_thread", 0),
    ("async_drop", 0),
    ("async_question_mark", 1),
    ("async_panic", 101),
    ("async_panic_of_one_thread", 101),
    ("async_task", 0),
    ("async_static", 0),
    ("async_unpolled_release", 0),
    ("async_several", 0),
    ("async_waiters", 0),
    ("async_waiters_of_one_thread", 0),
    ("async_waiters_panic", 101),
];

pub fn go(way: &str, url: &str, name: &str) -> ExitCode {
    let (way, is_away) = match way.strip_suffix("_away") {
        Some(way) => (way, true),
        None => (way, false),
    };
    // The log shows why a release was not delivered.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let done = match way.strip_prefix("async_") {
        Some(way) => of_async(way, url, name, is_away),
        None => of_threads(way, url, name, is_away),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// The response timeout is long enough for a busy machine, but short in an outage.
fn settings(is_away: bool) -> SemaphoreClientBuilder {
    SemaphoreClient::builder().response_timeout(Duration::from_secs(if is_away { 1 } else { 20 }))
}

fn pause(url: &str) -> Outcome {
    let mut admin = redis::Client::open(url)?.get_connection()?;
    Ok(redis::cmd("CLIENT").arg("PAUSE").arg(600_000).exec(&mut admin)?)
}

static BLOCKING: OnceLock<blocking::SemaphoreClient> = OnceLock::new();

fn of_threads(way: &str, url: &str, name: &str, is_away: bool) -> Outcome {
    let connect = || blocking::SemaphoreClient::connect_with(settings(is_away).connect(url));
    let acquire = |client: &blocking::SemaphoreClient| {
        client.semaphore(name).limit(1).lease(LEASE).build()?.acquire()
    };
    match way {
        "blocking_static" => {
            BLOCKING.get_or_init(|| connect().unwrap());
            drop(acquire(BLOCKING.wait())?);
            return Ok(());
        }
        "blocking_static_in_a_thread" => {
            let work = || drop(acquire(BLOCKING.get_or_init(|| connect().unwrap())).unwrap());
            thread::scope(|scope| scope.spawn(work).join()).unwrap();
            // The main thread has used the client, too.
            BLOCKING.wait().semaphore(name).limit(1).build()?.available_permits()?;
            return Ok(());
        }
        "blocking_among_async" => {
            return Runtime::new()?.block_on(async {
                let permit = tokio::task::block_in_place(|| acquire(&connect()?))?;
                drop(permit);
                Ok(())
            });
        }
        _ => {}
    }
    let client = connect()?;
    let permit = acquire(&client)?;
    if is_away {
        pause(url)?;
    }
    match way {
        "blocking_scope" => {}
        "blocking_drop" => drop(permit),
        "blocking_question_mark" => Err("what had to be done has failed")?,
        "blocking_panic" => panic!("as it must"),
        "blocking_exit" => {
            drop(permit);
            process::exit(3)
        }
        _ => unreachable!("{way} is on the list"),
    }
    Ok(())
}

static ASYNC: OnceLock<SemaphoreClient> = OnceLock::new();

fn of_async(way: &str, url: &str, name: &str, is_away: bool) -> Outcome {
    let runtime = match way.strip_suffix("_of_one_thread") {
        Some(_) => Builder::new_current_thread().enable_all().build()?,
        None => Runtime::new()?,
    };
    runtime.block_on(async {
        let client = settings(is_away).connect(url).await?;
        let semaphore = client.semaphore(name).limit(1).lease(LEASE).build()?;
        let permit = semaphore.acquire().await?;
        if is_away {
            pause(url)?;
        }
        match way.trim_end_matches("_of_one_thread") {
            "scope" => {}
            "drop" => drop(permit),
            "question_mark" => Err("what had to be done has failed")?,
            "panic" => panic!("as it must"),
            // This task holds the permit until the program ends.
            "task" => _ = tokio::spawn(async move { permit.lost().await }),
            "static" => {
                let client = ASYNC.get_or_init(|| client);
                drop((permit, client));
            }
            "unpolled_release" => drop(permit.release()),
            // Each task holds a permit of its own semaphore. All tasks end with the runtime.
            "several" => {
                drop(permit);
                for other in 0..20 {
                    let other = client.semaphore(format!("{name}.{other}")).limit(1).build()?;
                    let permit = other.acquire().await?;
                    tokio::spawn(async move { permit.lost().await });
                }
            }
            // Each task holds a permit, and all permits are of the same semaphore.
            "crowd" => {
                drop(permit);
                let many = client.semaphore(name).limit(CROWD).lease(LEASE).build()?;
                for _ in 0..CROWD {
                    let permit = many.acquire().await?;
                    tokio::spawn(async move { permit.lost().await });
                }
            }
            // One task holds all permits, and drops them just before the runtime ends.
            "hoard" => {
                drop(permit);
                let many = client.semaphore(name).limit(HOARD).lease(LEASE).build()?;
                let acquired = try_join_all((0..HOARD).map(|_| many.acquire())).await?;
                drop(acquired);
            }
            // The process's own tasks wait on two instances of the semaphore, and get permits while
            // the program ends.
            "waiters" | "waiters_panic" => {
                let again = client.semaphore(name).limit(1).lease(LEASE).build()?;
                for task in 0..10 {
                    let semaphore = if task % 2 == 0 { semaphore.clone() } else { again.clone() };
                    tokio::spawn(async move {
                        while let Ok(_permit) = semaphore.acquire().await {
                            tokio::time::sleep(Duration::from_millis(1)).await;
                        }
                    });
                }
                while semaphore.inspect().await?.queued < 10 {}
                drop(permit);
                while semaphore.inspect().await?.queued == 10 {}
                assert!(!way.ends_with("panic"), "as it must");
            }
            _ => unreachable!("{way} is on the list"),
        }
        Ok(())
    })
}
