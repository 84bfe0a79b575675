//! The server under measurement: where it is, and what it says of its own work.

use redis::{Connection, InfoDict, RedisResult};
use redis_semaphore::Semaphores;

use super::Result;

/// What the server did for scripts: all clients, all scripts, since the last [`Server::reset`].
#[derive(Debug, Clone, Copy)]
pub struct Work {
    pub calls: u64,
    pub usec: u64,
}

/// A connection beside those that are measured.
pub struct Server {
    pub connection: Connection,
}

impl Server {
    pub fn connect() -> Result<Self> {
        let connection = redis::Client::open(url()?)?.get_connection()?;
        Ok(Self { connection })
    }

    /// Forgets what was counted so far.
    pub fn reset(&mut self) -> RedisResult<()> {
        redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut self.connection)
    }

    /// Calls of scripts and the time spent in them. A script is counted as one call, however many
    /// commands it runs.
    pub fn scripts(&mut self) -> RedisResult<Work> {
        let stats = self.info("commandstats")?;
        let mut work = Work { calls: 0, usec: 0 };
        for command in ["evalsha", "eval"] {
            let line: String = stats.get(&format!("cmdstat_{command}")).unwrap_or_default();
            work.calls += number(&line, "calls");
            work.usec += number(&line, "usec");
        }
        Ok(work)
    }

    pub fn info(&mut self, section: &str) -> RedisResult<InfoDict> {
        redis::cmd("INFO").arg(section).query(&mut self.connection)
    }

    pub fn flush(&mut self) -> RedisResult<()> {
        redis::cmd("FLUSHALL").exec(&mut self.connection)
    }
}

/// Reads `name=number` off a line such as `calls=5,usec=120,usec_per_call=24.00`.
fn number(line: &str, name: &str) -> u64 {
    let value = line.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    value.and_then(|value| value.parse().ok()).unwrap_or(0)
}

pub fn url() -> Result<String> {
    std::env::var("REDIS_URL")
        .map_err(|_| "REDIS_URL is not set: run scripts/with-redis cargo bench".into())
}

/// A semaphore's name that nothing else uses.
pub fn unique_name(purpose: &str) -> String {
    format!("bench-{purpose}-{}", uuid::Uuid::new_v4())
}

pub async fn semaphores() -> Result<Semaphores> {
    Ok(Semaphores::connect(&url()?).await?)
}
