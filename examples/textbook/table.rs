//! What the processes share: semaphores, and a few keys in Redis with the story of what was done.

use redis_semaphore::redis::aio::MultiplexedConnection;
use redis_semaphore::redis::{Client, Cmd, FromRedisValue, cmd, pipe};
use redis_semaphore::{Error, Semaphore, Semaphores};

use crate::start::{self, Result};
use crate::{buffer, plate};

pub struct Table {
    semaphores: Semaphores,
    redis: MultiplexedConnection,
    name: String,
}

impl Table {
    pub async fn open(name: &str) -> Result<Self> {
        let url = start::redis_url()?;
        let semaphores = Semaphores::connect(&url).await?;
        let redis = Client::open(url)?.get_multiplexed_async_connection().await?;
        Ok(Self { semaphores, redis, name: name.to_owned() })
    }

    /// For permits that are given back by whoever took them.
    pub fn semaphore(&self, what: &str, limit: u32) -> Result<Semaphore> {
        Ok(self.semaphores.semaphore(format!("{}-{what}", self.name)).limit(limit).build()?)
    }

    /// For signals: one process adds permits, another one uses them up.
    pub fn signal(&self, what: &str, initial: u32) -> Result<Semaphore> {
        let name = format!("{}-{what}", self.name);
        Ok(self.semaphores.semaphore(name).initial_permits(initial).build()?)
    }

    pub fn key(&self, what: &str) -> String {
        format!("{}:{what}", self.name)
    }

    /// Runs a command and adds a line to the story, in one transaction, so the story has all that
    /// was done in the order in which it was.
    pub async fn tell<T: FromRedisValue>(&mut self, line: &str, command: Cmd) -> Result<T> {
        let mut steps = pipe();
        steps.atomic().add_command(command).rpush(self.key("history"), line).ignore();
        let (reply,) = steps.query_async(&mut self.redis).await?;
        println!("{line}");
        Ok(reply)
    }

    pub async fn clear(&mut self) -> Result<()> {
        self.clear_signals().await?;
        let keys = ["history", "plate", "buffer", "left", "right", "meals"];
        let mut delete = cmd("DEL");
        delete.arg(keys.map(|key| self.key(key)).as_slice());
        Ok(delete.exec_async(&mut self.redis).await?)
    }

    /// The number of permits that can be signalled is data, which Redis keeps until it is cleared.
    pub async fn clear_signals(&self) -> Result<()> {
        for what in plate::SIGNALS.into_iter().chain(buffer::SIGNALS) {
            self.signal(what, 0)?.clear_limit().await?;
        }
        Ok(())
    }
}

/// The textbook's P: uses a permit up for good. One that was lost before is not used up, which
/// means that somebody else may have it: once more, then.
pub async fn p(signal: &Semaphore) -> Result<()> {
    loop {
        match signal.acquire().await?.forget().await {
            Err(Error::Lost { .. }) => {}
            done => return Ok(done?),
        }
    }
}

/// The textbook's V.
pub async fn v(signal: &Semaphore) -> Result<()> {
    signal.add_permits(1).await?;
    Ok(())
}
