//! A task, which acquires, holds and releases a permit in a loop. Each process runs many tasks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis_semaphore::{Error, Permit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::load::groups::LoadGroup;
use crate::load::messages::{Log, Progress, Turn};
use crate::load::{Result, hold};

/// The state that all tasks of a process share.
pub struct Work {
    pub semaphore: Semaphore,
    pub weight: u32,
    pub hold: Duration,
    /// Canceled when the time is over.
    pub is_over: CancellationToken,
    pub acquires: AtomicU64,
    pub waiting: AtomicU64,
}

impl Work {
    pub fn progress(&self) -> Progress {
        Progress {
            acquires: self.acquires.load(Ordering::Relaxed),
            waiting: self.waiting.load(Ordering::Relaxed),
        }
    }

    pub async fn take_turns(&self, group: Option<LoadGroup>) -> Result<Log> {
        let name = group.as_ref().map(|group| group.name.clone());
        let mut log = Log { group: name, ..Log::default() };
        let acquire = || {
            let request = self.semaphore.request().weight(self.weight);
            match &group {
                Some(group) => request.group(group.group()).acquire(),
                None => request.acquire(),
            }
        };
        loop {
            let asked = clock::now();
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let permit = tokio::select! {
                biased;
                // Drops the wait, so that its request leaves the queue.
                () = self.is_over.cancelled() => return Ok(log),
                permit = acquire() => permit?,
            };
            let held = clock::now();
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            self.acquires.fetch_add(1, Ordering::Relaxed);

            self.hold(&permit).await;

            // The time is read before the release, because the next holder may begin before this
            // task has the reply.
            let freed = clock::now();
            log.turns.push(Turn { asked, held, freed });
            match permit.release().await {
                Err(Error::Lost { .. }) => log.lost += 1,
                released => released?,
            }
        }
    }

    /// Holds the permit. The hold ends early if the permit is lost, or if the time of the run is
    /// over.
    async fn hold(&self, permit: &Permit) {
        if self.hold.is_zero() {
            return;
        }
        tokio::select! {
            () = hold::hold(self.hold) => {}
            () = permit.lost() => {}
            () = self.is_over.cancelled() => {}
        }
    }
}
