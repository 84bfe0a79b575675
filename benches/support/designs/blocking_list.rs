//! The fair semaphore as one script, and a list on which waiters block. A release pushes to the
//! list, and the server pops for the client that has blocked longest.
//!
//! The usual published versions cannot be measured. In them, a request that is not granted stays in
//! the sets and counts as held, so after a short time no request is granted. In these versions, a
//! woken waiter does not try again, either. In this bench, the script removes a request that is not
//! granted, a woken waiter tries again, and the list has at most as many entries as the limit. All
//! other properties are as published: the clients' clocks are used, a new request may overtake a
//! woken waiter, and each waiter blocks its own connection.

use std::ops::Range;

use redis::RedisResult;
use redis::aio::MultiplexedConnection;

use super::sets::{Sets, ended, now};
use crate::support::Result;
use crate::support::baseline::id;
use crate::support::design::Design;
use crate::support::server::{client, connect, connection, load};

/// After this many seconds, a waiter tries again by itself, because a holder may have died before
/// its push.
const PATIENCE: u64 = 1;

const ACQUIRE: &str = "
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[2])
redis.call('ZINTERSTORE', KEYS[2], 2, KEYS[2], KEYS[1], 'WEIGHTS', 1, 0)
local number = redis.call('INCR', KEYS[3])
redis.call('ZADD', KEYS[1], ARGV[1], ARGV[3])
redis.call('ZADD', KEYS[2], number, ARGV[3])
if redis.call('ZRANK', KEYS[2], ARGV[3]) < tonumber(ARGV[4]) then
  return 1
end
redis.call('ZREM', KEYS[1], ARGV[3])
redis.call('ZREM', KEYS[2], ARGV[3])
return 0";

const RELEASE: &str = "
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('LPUSH', KEYS[3], 1)
redis.call('LTRIM', KEYS[3], 0, ARGV[2] - 1)
return 1";

#[derive(Clone)]
pub struct BlockingList {
    connection: MultiplexedConnection,
    waiting: MultiplexedConnection,
    sets: Sets,
    list: String,
    limit: u32,
    acquire: String,
    release: String,
}

impl BlockingList {
    async fn try_acquire(&mut self, id: &str) -> RedisResult<bool> {
        let Sets { times, owners, counter } = &self.sets;
        let now = now();
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.acquire).arg(3).arg(times).arg(owners).arg(counter);
        call.arg(now).arg(ended(now)).arg(id).arg(self.limit);
        call.query_async(&mut self.connection).await
    }

    async fn wait(&mut self) -> RedisResult<()> {
        let mut pop = redis::cmd("BRPOP");
        pop.arg(&self.list).arg(PATIENCE);
        pop.exec_async(&mut self.waiting).await
    }
}

impl Design for BlockingList {
    const NAME: &'static str = "blocking_list";
    type Permit = String;

    async fn open(name: &str, limit: u32) -> Result<Self> {
        let mut connection = connection().await?;
        Ok(Self {
            acquire: load(&mut connection, ACQUIRE).await?,
            release: load(&mut connection, RELEASE).await?,
            connection,
            waiting: connect(&client()?, None).await?,
            sets: Sets::new(name),
            list: format!("{{{name}}}:freed"),
            limit,
        })
    }

    async fn for_task(&self) -> Result<Self> {
        Ok(Self { waiting: connect(&client()?, None).await?, ..self.clone() })
    }

    async fn acquire(&mut self) -> Result<String> {
        let id = id();
        while !self.try_acquire(&id).await? {
            self.wait().await?;
        }
        Ok(id)
    }

    async fn release(&mut self, id: String) -> Result<()> {
        let Sets { times, owners, .. } = &self.sets;
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.release).arg(3).arg(times).arg(owners).arg(&self.list);
        call.arg(id).arg(self.limit);
        Ok(call.exec_async(&mut self.connection).await?)
    }

    async fn add_holders(&mut self, numbers: Range<u64>) -> Result<()> {
        self.sets.add_holders(&mut self.connection, numbers).await
    }
}
