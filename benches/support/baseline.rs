//! The baseline: scripts that do nothing, called with the keys and arguments of `acquire`,
//! `release` and `refresh`. Their replies have the form of the real replies, and their connection
//! is like the crate's. This crate causes any cost beyond the baseline.

use redis::aio::MultiplexedConnection;
use redis::{Client, Cmd, RedisResult};

use super::Result;
use super::design::Design;
use super::server::{client, connection_to, evalsha, keys_of, load, unique_name};

const ACQUIRE: &str = "return {1, -1, 2, 1, 3, 4}";
const RELEASE: &str = "return {1, -1, 1}";
const REFRESH: &str =
    "local reply = {1, -1} for i = 1, #ARGV / 2 do reply[i + 2] = 3 end return reply";

/// A client of the baseline. Clones are cheap and share a connection, like the tasks of a process.
/// All requests have the same ID, because no script checks it.
#[derive(Clone)]
pub struct Baseline {
    connection: MultiplexedConnection,
    acquire: String,
    release: String,
    refresh: String,
    keys: [String; 4],
    id: String,
}

impl Baseline {
    pub async fn connect() -> Result<Self> {
        Self::at(&client()?).await
    }

    /// Connects with this client, for example through a network.
    pub async fn at(client: &Client) -> Result<Self> {
        Self::over(connection_to(client).await?, RELEASE).await
    }

    /// Creates a client with this connection, and with this script for releases.
    pub(super) async fn over(mut connection: MultiplexedConnection, release: &str) -> Result<Self> {
        let acquire = load(&mut connection, ACQUIRE).await?;
        let release = load(&mut connection, release).await?;
        let refresh = load(&mut connection, REFRESH).await?;
        let keys = keys_of(&unique_name("baseline"));
        Ok(Self { connection, acquire, release, refresh, keys, id: id() })
    }

    pub async fn acquire(&mut self) -> RedisResult<()> {
        let mut cmd = evalsha(&self.acquire, &self.keys);
        cmd.arg("declare_if_unset").arg(1000).arg(15000).arg(&self.id).arg("wait");
        self.send(cmd, 6).await
    }

    pub async fn release(&mut self) -> RedisResult<()> {
        let mut cmd = evalsha(&self.release, &self.keys);
        cmd.arg("return").arg(&self.id);
        self.send(cmd, 3).await
    }

    pub async fn refresh(&mut self, ids: &[String]) -> RedisResult<()> {
        let mut cmd = evalsha(&self.refresh, &self.keys);
        for id in ids {
            cmd.arg(id).arg(30000);
        }
        self.send(cmd, ids.len() + 2).await
    }

    /// Sends the call, whose reply has this length.
    async fn send(&mut self, cmd: Cmd, length: usize) -> RedisResult<()> {
        let reply: Vec<i64> = cmd.query_async(&mut self.connection).await?;
        assert_eq!(reply.len(), length);
        Ok(())
    }
}

/// The baseline grants every request, because it has no limit.
impl Design for Baseline {
    const NAME: &'static str = "baseline";
    type Permit = ();

    async fn open(_: &str, _: u32) -> Result<Self> {
        Self::connect().await
    }

    async fn for_task(&self) -> Result<Self> {
        Ok(self.clone())
    }

    async fn acquire(&mut self) -> Result<()> {
        Ok(self.acquire().await?)
    }

    async fn release(&mut self, (): ()) -> Result<()> {
        Ok(self.release().await?)
    }
}

/// Returns an ID with the length of the crate's IDs.
pub fn id() -> String {
    let nonce = uuid::Uuid::new_v4().simple().to_string();
    format!("P:bench-host.{}.12345678:1:30000:{}", std::process::id(), &nonce[..22])
}
