//! The semaphore of distributed-lock-redis, with its default settings. Each attempt sends a whole
//! script. If no permit is free, the client polls at intervals that grow from 10 to 200 ms.

use std::sync::Arc;

use distributed_lock_core::traits::{DistributedSemaphore, LockHandle, SemaphoreProvider};
use distributed_lock_redis::{RedisDistributedSemaphore, RedisLockProvider, RedisSemaphoreHandle};

use crate::support::Result;
use crate::support::design::Design;
use crate::support::server::url;

/// The semaphore, whose connection all tasks share.
pub struct DistributedLock {
    semaphore: Arc<RedisDistributedSemaphore>,
}

impl Design for DistributedLock {
    const NAME: &'static str = "distributed_lock_redis";
    type Permit = RedisSemaphoreHandle;

    async fn open(name: &str, limit: u32) -> Result<Self> {
        let provider = RedisLockProvider::new(url()?).await?;
        Ok(Self { semaphore: Arc::new(provider.create_semaphore(name, limit)) })
    }

    async fn for_task(&self) -> Result<Self> {
        Ok(Self { semaphore: self.semaphore.clone() })
    }

    async fn acquire(&mut self) -> Result<RedisSemaphoreHandle> {
        Ok(self.semaphore.acquire(None).await?)
    }

    async fn release(&mut self, permit: RedisSemaphoreHandle) -> Result<()> {
        Ok(permit.release().await?)
    }
}
