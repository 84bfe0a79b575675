//! A process's own order: a permit that the process gives up is free for its next call.

use std::sync::Arc;
use std::time::Duration;

use redis_semaphore::{Error, Semaphore, SemaphoreClient};
use test_support::server::unique_name;
use tokio::time::sleep;

use super::super::LEASE;
use super::super::history::{What, now};
use super::reporter::Reporter;

/// Uses semaphores that no other process uses.
pub async fn keep_order(semaphores: SemaphoreClient, reporter: Arc<Reporter>) {
    let build = || semaphores.semaphore(unique_name()).limit(1).lease(LEASE).build().unwrap();
    let mut semaphore = build();
    while !reporter.ends() {
        // A call without a reply may still reach the server and hold the permit for some time.
        if drop_and_try(&semaphore, &reporter).await.is_err() {
            semaphore = build();
        }
        sleep(Duration::from_millis(fastrand::u64(0..20))).await;
    }
}

async fn drop_and_try(semaphore: &Semaphore, reporter: &Reporter) -> Result<(), Error> {
    let permit = tokio::select! {
        permit = semaphore.acquire() => permit?,
        () = reporter.drained() => return Ok(()),
    };
    let since = now();
    drop(permit);
    if semaphore.try_acquire().await?.is_none() {
        reporter.say(What::Overtaken { since });
    }
    Ok(())
}
