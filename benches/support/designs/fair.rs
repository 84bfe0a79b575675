//! The fair semaphore of "Redis in Action", 6.3.2: transactions, the clients' clocks, and polling
//! while no permit is free.

use std::ops::Range;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult};

use super::sets::{Sets, ended, now};
use super::{LONG_PAUSE, SHORT_PAUSE, pause};
use crate::support::Result;
use crate::support::baseline::id;
use crate::support::design::Design;
use crate::support::server::connection;

/// The design with pauses of at most `PAUSE` ms.
#[derive(Clone)]
pub struct Fair<const PAUSE: u64 = SHORT_PAUSE> {
    pub connection: MultiplexedConnection,
    sets: Sets,
    limit: u64,
}

pub type PatientFair = Fair<LONG_PAUSE>;

impl<const PAUSE: u64> Fair<PAUSE> {
    /// Runs two transactions, and a third one if no permit is free. Between the first two
    /// transactions, another client may be faster, so that too many requests are granted. "Redis in
    /// Action" describes this race, and prevents it with a lock.
    pub async fn try_acquire(&mut self, id: &str) -> RedisResult<bool> {
        let Sets { times, owners, counter } = &self.sets;
        let now = now();
        let (_, _, number): (u64, u64, u64) = redis::pipe()
            .atomic()
            .zrembyscore(times, "-inf", ended(now))
            .add_command(keep_those_in_both(owners, times))
            .incr(counter, 1)
            .query_async(&mut self.connection)
            .await?;
        let (_, _, rank): (u64, u64, Option<u64>) = redis::pipe()
            .atomic()
            .zadd(times, id, now)
            .zadd(owners, id, number)
            .zrank(owners, id)
            .query_async(&mut self.connection)
            .await?;
        if rank.is_some_and(|rank| rank < self.limit) {
            return Ok(true);
        }
        self.remove(id).await?;
        Ok(false)
    }

    pub async fn remove(&mut self, id: &str) -> RedisResult<()> {
        let Sets { times, owners, .. } = &self.sets;
        let mut transaction = redis::pipe();
        transaction.atomic().zrem(times, id).zrem(owners, id);
        transaction.exec_async(&mut self.connection).await
    }
}

/// Removes the members of `owners` that are no longer in `times`, and keeps the scores of `owners`.
fn keep_those_in_both(owners: &str, times: &str) -> Cmd {
    let mut cmd = redis::cmd("ZINTERSTORE");
    cmd.arg(owners).arg(2).arg(owners).arg(times).arg("WEIGHTS").arg(1).arg(0);
    cmd
}

impl<const PAUSE: u64> Design for Fair<PAUSE> {
    const NAME: &'static str = if PAUSE > SHORT_PAUSE { "patient_fair" } else { "fair" };
    type Permit = String;

    async fn open(name: &str, limit: u32) -> Result<Self> {
        Ok(Self { connection: connection().await?, sets: Sets::new(name), limit: limit.into() })
    }

    async fn for_task(&self) -> Result<Self> {
        Ok(self.clone())
    }

    async fn acquire(&mut self) -> Result<String> {
        let id = id();
        while !self.try_acquire(&id).await? {
            pause(PAUSE).await;
        }
        Ok(id)
    }

    async fn release(&mut self, id: String) -> Result<()> {
        Ok(self.remove(&id).await?)
    }

    async fn add_holders(&mut self, numbers: Range<u64>) -> Result<()> {
        self.sets.add_holders(&mut self.connection, numbers).await
    }
}
