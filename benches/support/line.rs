//! A queue of a certain length, which is filled by calls of the scripts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Result;
use super::design::Design;
use super::scripts::{GRANTED, QUEUED, Scripts, batches, numbered_id};

/// A semaphore with its holder, and its waiters in the order of their numbers.
#[derive(Clone)]
pub struct Line {
    pub scripts: Scripts,
    limit: u32,
    holder: Arc<AtomicU64>,
    next: Arc<AtomicU64>,
}

impl Line {
    /// Queues requests until the queue has this length.
    pub async fn fill(&mut self, waiters: u64) -> Result<()> {
        let end = self.holder.load(Ordering::Relaxed) + 1 + waiters;
        for ids in batches(self.next.swap(end, Ordering::Relaxed)..end) {
            self.scripts.acquire(self.limit, &ids, QUEUED).await?;
        }
        Ok(())
    }
}

/// In this design, an acquire only queues a request, and a release grants the permit to the first
/// waiter. So an acquire and a release together do not change the length of the queue.
impl Design for Line {
    const NAME: &'static str = "line";
    type Permit = ();

    async fn open(name: &str, limit: u32) -> Result<Self> {
        let mut scripts = Scripts::open(name).await?;
        scripts.acquire(limit, &[numbered_id(0)], GRANTED).await?;
        Ok(Self { scripts, limit, holder: Arc::default(), next: Arc::new(1.into()) })
    }

    async fn for_task(&self) -> Result<Self> {
        Ok(self.clone())
    }

    async fn acquire(&mut self) -> Result<()> {
        let id = numbered_id(self.next.fetch_add(1, Ordering::Relaxed));
        self.scripts.acquire(self.limit, &[id], QUEUED).await
    }

    async fn release(&mut self, (): ()) -> Result<()> {
        let id = numbered_id(self.holder.fetch_add(1, Ordering::Relaxed));
        self.scripts.release(&[id]).await
    }
}
