//! The memory that a process keeps, counted by its allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis_semaphore::SemaphoreClient;
use test_support::observer::eventually;
use test_support::server::{Server, unique_name};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

const MANY: usize = 10_000;

/// The number of bytes that are allocated now.
static KEPT: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: this allocator only counts bytes, and calls the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        KEPT.fetch_add(layout.size(), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        KEPT.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn kept() -> usize {
    KEPT.load(Ordering::Relaxed)
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// All checks are in one test, because memory of other tests in this process would be counted, too.
#[tokio::test]
async fn idle_semaphores_and_canceled_waits_use_little_memory() {
    let server = Server::start();
    let client = SemaphoreClient::connect(&server.url()).await.unwrap();
    idle_semaphores(&client);
    waits_that_were_never_sent(&client, server).await;
    let server = Server::start();
    let client = SemaphoreClient::connect(&server.url()).await.unwrap();
    waits_that_are_canceled_in_an_outage(&client, server).await;
}

fn idle_semaphores(client: &SemaphoreClient) {
    let build =
        |number: usize| client.semaphore(format!("idle-{number:06}")).limit(1).build().unwrap();
    let mut all = Vec::with_capacity(2 * MANY);
    let (kept_before, tasks_before) = (kept(), tasks());
    all.extend((0..MANY).map(build));
    let each = (kept() - kept_before) / MANY;
    assert!(each <= 1536, "{each} bytes for each semaphore that is built");
    println!("{each} bytes for each semaphore that is built");
    assert_eq!(tasks(), tasks_before);
}

/// The server never got these requests, so there is nothing to release.
async fn waits_that_were_never_sent(client: &SemaphoreClient, server: Server) {
    let semaphore = client.semaphore(unique_name()).limit(1).build().unwrap();
    semaphore.acquire().await.unwrap().release().await.unwrap();
    drop(server);
    assert!(semaphore.try_acquire().await.is_err(), "the server is gone");
    let kept_before = kept();
    let mut waits = JoinSet::new();
    for _ in 0..MANY {
        waits.spawn(semaphore.request().acquire());
    }
    tokio::task::yield_now().await;
    waits.shutdown().await;
    drop(waits);
    // A call with some of the requests may be under way.
    let each = async || kept().saturating_sub(kept_before) / MANY;
    let each = eventually("forgotten", each, |each| *each <= 64).await;
    println!("{each} bytes for each wait that was never sent");
}

/// The requests may be in the server's queue.
async fn waits_that_are_canceled_in_an_outage(client: &SemaphoreClient, server: Server) {
    let lease = Duration::from_secs(60 * 60);
    let semaphore = client.semaphore(unique_name()).limit(1).lease(lease).build().unwrap();
    let _permit = semaphore.acquire().await.unwrap();
    let (kept_before, tasks_before) = (kept(), tasks());
    let mut waits = JoinSet::new();
    for _ in 0..MANY {
        waits.spawn(semaphore.request().acquire());
    }
    let queued = async || semaphore.inspect().await.unwrap().queued;
    eventually("queued", queued, |queued| *queued == MANY as u64).await;
    drop(server);
    waits.shutdown().await;
    drop(waits);
    // A call that is under way has a copy of the IDs.
    let each = async || kept().saturating_sub(kept_before) / MANY;
    let each = eventually("little memory for each", each, |each| *each <= 700).await;
    println!("{each} bytes for each wait that was canceled");
    assert!(tasks() <= tasks_before + 10, "{} tasks", tasks() - tasks_before);
}
