//! The floor: scripts that do nothing, called with the keys and arguments of `acquire` and
//! `release`, with answers of the same shape, over the same kind of connection. What a call costs
//! beyond that is what this crate adds.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult};

use super::Result;
use super::server::{unique_name, url};

const ACQUIRE: &str = "return {1, 2, 1, 3, 4}";
const RELEASE: &str = "return {1, -1, 1}";

/// Cheap to clone: all clones share a connection, as the tasks of a process do.
#[derive(Clone)]
pub struct Floor {
    connection: MultiplexedConnection,
    acquire: String,
    release: String,
    keys: [String; 4],
    channel: String,
}

impl Floor {
    pub async fn connect() -> Result<Self> {
        // The response timeout is the one that the crate has unless told otherwise.
        let config =
            AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(2)));
        let client = Client::open(url()?)?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let mut load = async |source: &str| -> RedisResult<String> {
            redis::cmd("SCRIPT").arg("LOAD").arg(source).query_async(&mut connection).await
        };
        let (acquire, release) = (load(ACQUIRE).await?, load(RELEASE).await?);
        let name = unique_name("floor");
        let keys =
            ["permits", "queue", "waiting", "state"].map(|key| format!("sem:{{{name}}}:{key}"));
        let channel = format!("sem:wake:{}", uuid::Uuid::new_v4().simple());
        Ok(Self { connection, acquire, release, keys, channel })
    }

    /// One call with what an acquire sends.
    pub async fn acquire(&mut self, id: &str) -> RedisResult<()> {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(&self.acquire).arg(4).arg(&self.keys);
        cmd.arg("declared").arg(1000).arg(&self.channel).arg("publish").arg(15000);
        cmd.arg(id).arg(1).arg(30000).arg("wait");
        let reply: Vec<i64> = cmd.query_async(&mut self.connection).await?;
        assert_eq!(reply.len(), 5);
        Ok(())
    }

    /// One call with what a release sends.
    pub async fn release(&mut self, id: &str) -> RedisResult<()> {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(&self.release).arg(4).arg(&self.keys).arg("return").arg(id);
        let reply: Vec<i64> = cmd.query_async(&mut self.connection).await?;
        assert_eq!(reply.len(), 3);
        Ok(())
    }

    /// What an acquire and a release cost at least.
    pub async fn pair(&mut self, id: &str) -> RedisResult<()> {
        self.acquire(id).await?;
        self.release(id).await
    }
}

/// An id as long as the crate's own.
pub fn id() -> String {
    format!("{}:{}:{}", "bench-host", std::process::id(), uuid::Uuid::new_v4().simple())
}
