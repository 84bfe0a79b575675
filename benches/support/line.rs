//! A queue of a certain length, which is filled by calls of the scripts.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Result;
use super::design::Design;
use super::scripts::{GRANTED, QUEUED, RELEASED, Scripts, batches_of, numbered_id, numbered_id_in};

/// A semaphore with its holders, and its waiters in the order of their numbers.
#[derive(Clone)]
pub struct Line {
    pub scripts: Scripts,
    limit: u32,
    /// The number of groups, to which the requests belong in turns, or 0.
    groups: u64,
    /// The number of the first holder.
    holder: Arc<AtomicU64>,
    next: Arc<AtomicU64>,
}

impl Line {
    /// Opens a semaphore of which all permits are held.
    pub async fn with_groups(name: &str, limit: u32, groups: u64) -> Result<Self> {
        let scripts = Scripts::open(name).await?;
        let scripts = if groups > 0 { scripts.with_groups() } else { scripts };
        let next = Arc::new(u64::from(limit).into());
        let mut line = Self { scripts, limit, groups, holder: Arc::default(), next };
        let holders = line.ids(0..limit.into());
        line.scripts.acquire(limit, &holders, GRANTED).await?;
        Ok(line)
    }

    fn id(&self, number: u64) -> String {
        if self.groups == 0 {
            return numbered_id(number);
        }
        // The first waiter belongs to the group whose name is first, so the groups' turns come in
        // the order of the numbers.
        let group = (number + self.groups - u64::from(self.limit) % self.groups) % self.groups;
        numbered_id_in(&format!("tenant-{group:05},2,1000:"), number)
    }

    fn ids(&self, numbers: Range<u64>) -> Vec<String> {
        numbers.map(|number| self.id(number)).collect()
    }

    /// Releases the permits of the first holders. Each call releases this number of permits, and
    /// grants them to the first waiters.
    pub async fn hand_off(&mut self, permits: u64, in_a_call: usize) -> Result<()> {
        let first = self.holder.fetch_add(permits, Ordering::Relaxed);
        let ids = self.ids(first..first + permits);
        let calls = self.scripts.releases(&ids, in_a_call);
        self.scripts.send(calls, RELEASED).await
    }

    /// Queues requests until the queue has this length.
    pub async fn fill(&mut self, waiters: u64) -> Result<()> {
        let end = self.holder.load(Ordering::Relaxed) + u64::from(self.limit) + waiters;
        let numbers = self.next.swap(end, Ordering::Relaxed)..end;
        let line = self.clone();
        for ids in batches_of(numbers, |number| line.id(number)) {
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
        Self::with_groups(name, limit, 0).await
    }

    async fn for_task(&self) -> Result<Self> {
        Ok(self.clone())
    }

    async fn acquire(&mut self) -> Result<()> {
        let id = self.id(self.next.fetch_add(1, Ordering::Relaxed));
        self.scripts.acquire(self.limit, &[id], QUEUED).await
    }

    async fn release(&mut self, (): ()) -> Result<()> {
        self.hand_off(1, 1).await
    }
}
