//! Acquires a permit repeatedly, and prints the times. The times of this program and of similar
//! programs in other languages show that all programs share one semaphore. See `clients/test`.
//!
//! `cargo run --example turns -- NAME LIMIT COUNT HOLD_MS LEASE_MS`

use std::env;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Parser;
use redis_semaphore::SemaphoreClient;

/// Acquire a permit repeatedly, and print the times
#[derive(Parser)]
#[command(name = "turns")]
struct Options {
    name: String,
    limit: u32,
    count: u64,
    hold_ms: u64,
    lease_ms: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Options { name, limit, count, hold_ms, lease_ms } = Options::parse();
    let url = env::var("REDIS_URL").unwrap_or("redis://127.0.0.1".to_owned());
    let client = SemaphoreClient::connect(&url).await?;
    let lease = Duration::from_millis(lease_ms);
    let semaphore = client.semaphore(name).limit(limit).lease(lease).build()?;
    for _ in 0..count {
        let permit = semaphore.acquire().await?;
        println!("held {} {}", permit.fencing_token(), now()?);
        tokio::time::sleep(Duration::from_millis(hold_ms)).await;
        println!("released {}", now()?);
        permit.release().await?;
    }
    client.shutdown().await;
    Ok(())
}

fn now() -> Result<u128, std::time::SystemTimeError> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros())
}
