//! Many acquire/release cycles by the tasks of one process.

use redis_semaphore::Semaphore;
use tokio::task::JoinSet;

use crate::memory::Memory;
use crate::support::Result;
use crate::support::figure::Figure;
use crate::support::server::{semaphores, unique_name};

const TASKS: u64 = 256;
const TENTHS: u64 = 10;

pub async fn run(pairs: u64) -> Result<Vec<Figure>> {
    let semaphores = semaphores().await?;
    let semaphore = semaphores.semaphore(unique_name("pairs")).limit(1_000_000).build()?;
    let mut memory = Memory::new()?;
    let each = pairs.div_ceil(TENTHS * TASKS);
    for tenth in 1..=TENTHS {
        let tasks: JoinSet<_> = (0..TASKS).map(|_| take(semaphore.clone(), each)).collect();
        tasks.join_all().await.into_iter().collect::<Result<()>>()?;
        memory.note(format!("{} pairs", tenth * TASKS * each)).await?;
    }
    semaphores.shutdown().await;
    let what = ("pairs: client's memory, first tenth and end", "pairs: server's memory");
    memory.figures(("L1", "L1a"), what)
}

async fn take(semaphore: Semaphore, pairs: u64) -> Result<()> {
    for _ in 0..pairs {
        semaphore.acquire().await?.release().await?;
    }
    Ok(())
}
