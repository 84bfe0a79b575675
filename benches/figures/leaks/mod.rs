//! L: the memory of a long-running process, and the memory of its server, after a tenth of the run
//! and at the end. These figures need Linux, because they read /proc.

mod memory;

use std::time::{Duration, Instant};

use redis_semaphore::{Semaphore, SemaphoreClient};
use tokio::task::JoinSet;

use crate::support::Result;
use crate::support::arguments::only_tests;
use crate::support::figure::Figure;
use crate::support::server::{semaphores, unique_name};
use memory::Memory;

const TENTHS: u32 = 10;
/// The number of tasks that share a semaphore.
const TASKS: u32 = 256;
/// The number of tasks that build a semaphore for each request.
const BUILDERS: u64 = 16;
const CUSTOMERS: u64 = 1000;
/// The lease of L2 is longer than the run, so that memory kept until a lease expires adds up.
const LEASE: Duration = Duration::from_secs(60 * 60);
/// The pause between two requests of a task.
const PAUSE: Duration = Duration::from_millis(1);

/// Measures many acquire/release cycles by the tasks of one process.
pub async fn l1() -> Result<Vec<Figure>> {
    let semaphores = semaphores().await?;
    let semaphore = semaphores.semaphore(unique_name("leaks")).limit(1_000_000).build()?;
    // Ten million cycles take about three minutes.
    let all = if only_tests() { 10_000 } else { 10_000_000 };
    let mut memory = Memory::new()?;
    for _ in 0..TENTHS {
        let tasks: JoinSet<_> =
            (0..TASKS).map(|_| pairs(semaphore.clone(), all / TENTHS / TASKS)).collect();
        tasks.join_all().await.into_iter().collect::<Result<()>>()?;
        memory.note().await?;
    }
    semaphores.shutdown().await;
    memory.figures(("L1", "L1a"), "many cycles")
}

async fn pairs(semaphore: Semaphore, pairs: u32) -> Result<()> {
    for _ in 0..pairs {
        semaphore.acquire().await?.release().await?;
    }
    Ok(())
}

/// Measures a process that builds a semaphore for each request, like a process with a semaphore for
/// each customer.
pub async fn l2() -> Result<Vec<Figure>> {
    let semaphores = semaphores().await?;
    let customers = unique_name("customer");
    let tenth = Duration::from_secs_f64(if only_tests() { 0.05 } else { 60.0 });
    let mut memory = Memory::new()?;
    for _ in 0..TENTHS {
        let end = Instant::now() + tenth;
        let serve = |first| serve(semaphores.clone(), customers.clone(), first, end);
        let tasks: JoinSet<_> = (0..BUILDERS).map(serve).collect();
        tasks.join_all().await.into_iter().collect::<Result<()>>()?;
        memory.note().await?;
    }
    memory.figures(("L2", "L2a"), "a semaphore for each request")
}

/// Serves every 16th customer, beginning with `customer`, until `end`.
async fn serve(
    semaphores: SemaphoreClient,
    customers: String,
    mut customer: u64,
    end: Instant,
) -> Result<()> {
    while Instant::now() < end {
        let name = format!("{customers}-{customer}");
        let semaphore = semaphores.semaphore(name).limit(10).lease(LEASE).build()?;
        semaphore.acquire().await?.release().await?;
        customer = (customer + BUILDERS) % CUSTOMERS;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
