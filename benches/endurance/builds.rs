//! A process that builds a semaphore for each request, like a process with a semaphore for each
//! customer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis_semaphore::SemaphoreClient;
use tokio::task::JoinSet;

use crate::memory::Memory;
use crate::support::Result;
use crate::support::figure::Figure;
use crate::support::server::{semaphores, unique_name};

const TASKS: u64 = 16;
const CUSTOMERS: u64 = 1000;
/// The lease is longer than the run, so that any memory that is kept until a lease expires adds up.
const LEASE: Duration = Duration::from_secs(60 * 60);
/// The pause between two requests of a task.
const PAUSE: Duration = Duration::from_millis(1);
const TENTHS: u32 = 10;

pub async fn run(minutes: f64) -> Result<Vec<Figure>> {
    let semaphores = semaphores().await?;
    let customers = Arc::new(unique_name("customer"));
    let built = Arc::new(AtomicU64::new(0));
    let mut memory = Memory::new()?;
    for _ in 0..TENTHS {
        let end = Instant::now() + Duration::from_secs_f64(minutes * 60.0) / TENTHS;
        let serve = |_| serve(semaphores.clone(), customers.clone(), built.clone(), end);
        let tasks: JoinSet<_> = (0..TASKS).map(serve).collect();
        tasks.join_all().await.into_iter().collect::<Result<()>>()?;
        memory.note(format!("{} semaphores", built.load(Ordering::Relaxed))).await?;
    }
    let what = ("a semaphore a request: client's memory", "a semaphore a request: server's memory");
    memory.figures(("L2", "L2a"), what)
}

async fn serve(
    semaphores: SemaphoreClient,
    customers: Arc<String>,
    built: Arc<AtomicU64>,
    end: Instant,
) -> Result<()> {
    while Instant::now() < end {
        let customer = built.fetch_add(1, Ordering::Relaxed) % CUSTOMERS;
        let name = format!("{customers}-{customer}");
        let semaphore = semaphores.semaphore(name).limit(10).lease(LEASE).build()?;
        semaphore.acquire().await?.release().await?;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
