//! Tests that a process keeps no data of dropped semaphores, except the numbers of IDs that are
//! still in use. A separate process measures its own memory.

use std::time::Duration;

use redis_semaphore::SemaphoreClient;
use tokio::runtime::Handle;

use test_support::child::{self, Process, memory};
use test_support::observer::eventually;
use test_support::server::{Server, shared_url, unique_name};

const SEMAPHORES: usize = 10_000;

/// How the process's permits end.
const RELEASED: &str = "released";
const LEFT: &str = "left";
const PASSED_ON: &str = "passed on";
const DROPPED: &str = "left on drop";

/// Acquires once from each of many semaphores with long leases, and drops the semaphores.
async fn drop_semaphores(client: &SemaphoreClient, count: usize, ends: &str) {
    let prefix = unique_name();
    for number in 0..count {
        let name = format!("{prefix}-{number}");
        let lease = Duration::from_secs(60 * 60);
        let builder = client.semaphore(name).limit(1).lease(lease);
        let semaphore = builder.let_expire_on_drop(ends == DROPPED).build().unwrap();
        let permit = semaphore.acquire().await.unwrap();
        match ends {
            RELEASED => permit.release().await.unwrap(),
            LEFT => permit.let_expire().await.unwrap(),
            PASSED_ON => drop(permit.detach()),
            _ => drop(permit),
        }
    }
}

#[tokio::test]
async fn a_process_keeps_almost_no_memory_of_dropped_semaphores() {
    for ends in [RELEASED, LEFT, PASSED_ON, DROPPED] {
        // Permits that remain on the server stay for an hour.
        let server = Server::start();
        let role = format!("{} {ends}", server.url());
        let test = "semaphore::kept::a_process_that_drops_semaphores";
        let grown = Process::start(test, &role).next().await.expect("its memory growth");
        let grown: u64 = grown.parse().unwrap();
        // The process may have grown by less than 200 bytes for each semaphore.
        assert!(grown * 1024 / (SEMAPHORES as u64) < 200, "{ends}: grown by {grown} kB");
    }
}

/// This is not a test, but the process of the test above.
#[tokio::test]
async fn a_process_that_drops_semaphores() {
    let Some(role) = child::role() else { return };
    let (url, ends) = role.split_once(' ').unwrap();
    let client = SemaphoreClient::connect(url).await.unwrap();
    drop_semaphores(&client, SEMAPHORES / 10, ends).await;
    let before = memory("VmRSS");
    drop_semaphores(&client, SEMAPHORES, ends).await;
    child::say(&memory("VmRSS").saturating_sub(before).to_string());
}

/// When no permit is held, awaited or being released, no task remains.
#[tokio::test]
async fn background_tasks_end_when_no_permit_is_held_or_awaited() {
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let lease = Duration::from_secs(1);
    let semaphore = client.semaphore(unique_name()).limit(1).lease(lease).build().unwrap();
    let tasks = async || Handle::current().metrics().num_alive_tasks();
    let before = tasks().await;
    let permit = semaphore.acquire().await.unwrap();
    let waiting = tokio::spawn(semaphore.request().acquire());
    eventually("busy", tasks, |tasks| *tasks > before + 1).await;
    drop(permit);
    drop(waiting.await.unwrap().unwrap());
    eventually("idle", tasks, |tasks| *tasks == before).await;
    semaphore.acquire().await.unwrap().release().await.unwrap();
}
