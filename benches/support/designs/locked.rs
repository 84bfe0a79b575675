//! The fair semaphore behind a lock ("Redis in Action", 6.3.4). The lock prevents the race of
//! `Fair::try_acquire`.

use std::ops::Range;
use std::time::Duration;

use redis::RedisResult;

use super::fair::Fair;
use super::{SHORT_PAUSE, pause};
use crate::support::Result;
use crate::support::baseline::id;
use crate::support::design::Design;
use crate::support::server::load;

/// The interval between attempts to get the lock, as in "Redis in Action".
const LOCK_PAUSE: Duration = Duration::from_millis(1);
/// The time in ms after which the lock of a dead client expires, as in "Redis in Action".
const LOCK_TIMEOUT: u64 = 10_000;

/// "Redis in Action" watches the key and deletes it in a transaction. A script takes only one round
/// trip, and tasks can share the connection.
const UNLOCK: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                      return redis.call('DEL', KEYS[1]) end return 0";

#[derive(Clone)]
pub struct Locked {
    fair: Fair,
    lock: String,
    unlock: String,
}

impl Locked {
    async fn try_acquire(&mut self, id: &str) -> RedisResult<bool> {
        while !self.try_lock(id).await? {
            tokio::time::sleep(LOCK_PAUSE).await;
        }
        let acquired = self.fair.try_acquire(id).await;
        self.unlock(id).await?;
        acquired
    }

    async fn try_lock(&mut self, id: &str) -> RedisResult<bool> {
        let mut set = redis::cmd("SET");
        set.arg(&self.lock).arg(id).arg("NX").arg("PX").arg(LOCK_TIMEOUT);
        let reply: Option<String> = set.query_async(&mut self.fair.connection).await?;
        Ok(reply.is_some())
    }

    async fn unlock(&mut self, id: &str) -> RedisResult<()> {
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.unlock).arg(1).arg(&self.lock).arg(id);
        call.exec_async(&mut self.fair.connection).await
    }
}

impl Design for Locked {
    const NAME: &'static str = "locked";
    type Permit = String;

    async fn open(name: &str, limit: u32) -> Result<Self> {
        let mut fair = Fair::open(name, limit).await?;
        let unlock = load(&mut fair.connection, UNLOCK).await?;
        Ok(Self { fair, lock: format!("{{{name}}}:lock"), unlock })
    }

    async fn for_task(&self) -> Result<Self> {
        Ok(self.clone())
    }

    async fn acquire(&mut self) -> Result<String> {
        let id = id();
        while !self.try_acquire(&id).await? {
            pause(SHORT_PAUSE).await;
        }
        Ok(id)
    }

    async fn release(&mut self, id: String) -> Result<()> {
        Ok(self.fair.remove(&id).await?)
    }

    async fn add_holders(&mut self, numbers: Range<u64>) -> Result<()> {
        self.fair.add_holders(numbers).await
    }
}
