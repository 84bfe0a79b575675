//! A process that acquires a permit in one of four ways. Start several processes in several
//! terminals. Each holds its permit until Enter is pressed or its input ends.
//!
//! ```text
//! REDIS_URL=redis://... cargo run --example hold -- try downloads 2
//! REDIS_URL=redis://... cargo run --example hold -- lock invoices 5000 30000
//! ```
//!
//! The four ways replace designs of "Redis in Action", chapter 6:
//!
//! - `try`: the counting semaphore, a sorted set of holders by the client's time. A client with a
//!   slow clock took the permit of another client.
//! - `queue`: the fair semaphore, with a counter and a second sorted set. This design did not queue
//!   requests, so clients had to poll. Each acquire read all holders, in several round trips.
//! - `stream`: the refreshed semaphore. Each holder had to refresh by itself, and found out about a
//!   loss only during a refresh. For a moment, a lost permit seemed to be held again.
//! - `lock`: the lock with a timeout. Waiters polled every millisecond, in no order. After a
//!   crash between the two commands of an acquire, only a later attempt gave the lock a timeout.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use redis_semaphore::{Error, Permit, Semaphore, SemaphoreClient};
use tokio::sync::oneshot;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const CHUNK: Duration = Duration::from_millis(20);

/// Acquire a permit, hold it until Enter is pressed, and print what happens
#[derive(Parser)]
enum How {
    /// Acquire a permit only if one is free
    Try { name: String, limit: u32 },
    /// Wait in the queue, in order of arrival
    Queue { name: String, limit: u32 },
    /// Send a stream that may take longer than its lease, and stop if the permit is lost
    Stream { name: String, limit: u32, lease_ms: u64 },
    /// Wait for a lock no longer than the timeout; after a crash, the lock stays locked for up to one lease
    Lock { name: String, timeout_ms: u64, lease_ms: u64 },
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(How::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hold: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(how: How) -> Result<()> {
    let client = SemaphoreClient::connect(&redis_url()?).await?;
    match how {
        How::Try { name, limit } => {
            let semaphore = client.semaphore(name).limit(limit).build()?;
            match semaphore.try_acquire().await? {
                Some(permit) => hold(permit, std::future::pending()).await?,
                None => println!("not granted"),
            }
        }
        How::Queue { name, limit } => {
            let semaphore = client.semaphore(name).limit(limit).build()?;
            hold(wait(&semaphore).await?, std::future::pending()).await?;
        }
        How::Stream { name, limit, lease_ms } => {
            let lease = Duration::from_millis(lease_ms);
            let semaphore = client.semaphore(name).limit(limit).lease(lease).build()?;
            hold(wait(&semaphore).await?, send_chunks()).await?;
        }
        How::Lock { name, timeout_ms, lease_ms } => {
            let lock = client
                .semaphore(name)
                .limit(1)
                .acquire_timeout(Duration::from_millis(timeout_ms))
                .lease(Duration::from_millis(lease_ms))
                .build()?;
            match wait(&lock).await {
                Ok(permit) => hold(permit, std::future::pending()).await?,
                Err(Error::Timeout { waited, position, .. }) => {
                    let position = position.map_or("?".to_owned(), |position| position.to_string());
                    println!("timed out after {} ms, at position {position}", waited.as_millis());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    client.shutdown().await;
    Ok(())
}

fn redis_url() -> Result<String> {
    std::env::var("REDIS_URL").map_err(|_| "REDIS_URL is not set: see scripts/with-redis".into())
}

async fn wait(semaphore: &Semaphore) -> std::result::Result<Permit, Error> {
    println!("waiting");
    semaphore.acquire().await
}

/// Works with the permit until Enter is pressed. The permit is refreshed in the background.
async fn hold(permit: Permit, work: impl Future<Output = ()>) -> Result<()> {
    println!("granted {}", permit.fencing_token());
    tokio::select! {
        biased;
        // Another process may hold the permit now, so the work stops immediately. This branch is
        // polled first: if the permit is lost while this process is suspended, no further chunk is
        // sent.
        () = permit.lost() => {}
        () = enter() => {}
        () = work => {}
    }
    match permit.release().await {
        Err(Error::Lost { .. }) => println!("lost"),
        released => {
            released?;
            println!("released");
        }
    }
    Ok(())
}

async fn send_chunks() {
    let started = Instant::now();
    let mut ticks = tokio::time::interval(CHUNK);
    for chunk in 1.. {
        ticks.tick().await;
        println!("chunk {chunk} after {} ms", started.elapsed().as_millis());
    }
}

async fn enter() {
    let (pressed, is_pressed) = oneshot::channel::<()>();
    // A separate thread reads, because Tokio's shutdown would wait until a read in its own threads
    // ends.
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_line(&mut String::new());
        drop(pressed);
    });
    let _ = is_pressed.await;
}
