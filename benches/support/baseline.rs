//! The baseline: scripts that do nothing, called with the keys and arguments of `acquire`, `release`
//! and `refresh`, with answers of the same shape, over the same kind of connection. What a call
//! costs beyond that is what this crate adds.

use redis::aio::MultiplexedConnection;
use redis::{Client, Cmd, RedisResult};

use super::Result;
use super::design::Design;
use super::server::{client, connection_to, load, unique_name};

const ACQUIRE: &str = "return {1, -1, 2, 1, 3, 4}";
const RELEASE: &str = "return {1, -1, 1}";
const REFRESH: &str =
    "local reply = {1, -1} for i = 1, #ARGV / 2 do reply[i + 2] = 3 end return reply";

/// Cheap to clone: all clones share a connection, as the tasks of a process do.
#[derive(Clone)]
pub struct Baseline {
    connection: MultiplexedConnection,
    acquire: String,
    release: String,
    refresh: String,
    keys: [String; 4],
}

impl Baseline {
    pub async fn connect() -> Result<Self> {
        Self::at(&client()?).await
    }

    /// At the end of a network, say.
    pub async fn at(client: &Client) -> Result<Self> {
        Self::over(connection_to(client).await?, RELEASE).await
    }

    /// With a script of one's own for releases.
    pub(super) async fn over(mut connection: MultiplexedConnection, release: &str) -> Result<Self> {
        let acquire = load(&mut connection, ACQUIRE).await?;
        let release = load(&mut connection, release).await?;
        let refresh = load(&mut connection, REFRESH).await?;
        let name = unique_name("baseline");
        let keys =
            ["permits", "queue", "clients", "state"].map(|key| format!("sem:{{{name}}}:{key}"));
        Ok(Self { connection, acquire, release, refresh, keys })
    }

    /// One call with what an acquire sends.
    pub async fn acquire(&mut self, id: &str) -> RedisResult<()> {
        let mut cmd = self.call(&self.acquire);
        cmd.arg("declare_if_unset").arg(1000).arg(15000).arg(id).arg("wait");
        self.send(cmd, 6).await
    }

    /// One call with what a release sends.
    pub async fn release(&mut self, id: &str) -> RedisResult<()> {
        let mut cmd = self.call(&self.release);
        cmd.arg("return").arg(id);
        self.send(cmd, 3).await
    }

    /// One call with what a refresh of so many permits sends.
    pub async fn refresh(&mut self, ids: &[String]) -> RedisResult<()> {
        let mut cmd = self.call(&self.refresh);
        for id in ids {
            cmd.arg(id).arg(30000);
        }
        self.send(cmd, ids.len() + 2).await
    }

    /// What an acquire and a release cost at least.
    pub async fn pair(&mut self, id: &str) -> RedisResult<()> {
        self.acquire(id).await?;
        self.release(id).await
    }

    fn call(&self, script: &str) -> Cmd {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(script).arg(self.keys.len()).arg(&self.keys);
        cmd
    }

    async fn send(&mut self, cmd: Cmd, answers: usize) -> RedisResult<()> {
        let reply: Vec<i64> = cmd.query_async(&mut self.connection).await?;
        assert_eq!(reply.len(), answers);
        Ok(())
    }
}

/// Never refuses: there is no limit, and nothing to wait for.
impl Design for Baseline {
    const NAME: &'static str = "baseline";
    type Permit = String;

    async fn open(_: &str, _: u32) -> Result<Self> {
        Self::connect().await
    }

    async fn for_task(&self) -> Result<Self> {
        Ok(self.clone())
    }

    async fn acquire(&mut self) -> Result<String> {
        let id = id();
        self.acquire(&id).await?;
        Ok(id)
    }

    async fn release(&mut self, id: String) -> Result<()> {
        Ok(self.release(&id).await?)
    }
}

/// As long as the crate's own.
pub fn id() -> String {
    let nonce = uuid::Uuid::new_v4().simple().to_string();
    format!("P:bench-host.{}.12345678:1:30000:{}", std::process::id(), &nonce[..22])
}
