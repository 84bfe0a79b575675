//! The server under measurement: where it is, and what it says of its own work.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, Connection, InfoDict, RedisResult};
use redis_semaphore::SemaphoreClient;

use super::Result;

/// What the crate has by default.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// What the server did for scripts: all clients, all scripts, since it started.
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
        let connection = client()?.get_connection()?;
        Ok(Self { connection })
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

    /// The time that the server spends in scripts while this is done. Ends the bench on an error.
    pub fn time_in_scripts<T>(&mut self, work: impl FnOnce() -> T) -> Duration {
        let mut usec = || match self.scripts() {
            Ok(work) => work.usec,
            Err(error) => panic!("{error}"),
        };
        let before = usec();
        work();
        Duration::from_micros(usec() - before)
    }

    /// In bytes.
    pub fn used_memory(&mut self) -> Result<u64> {
        memory(&self.info("memory")?, "used_memory")
    }

    /// The same without the buffers of its connections, which grow and shrink by themselves, and
    /// without its log of slow calls, which is emptied: each that a busy machine holds up for 10 ms
    /// takes a KB or more there, up to 128 of them.
    pub fn kept_memory(&mut self) -> Result<u64> {
        redis::cmd("SLOWLOG").arg("RESET").exec(&mut self.connection)?;
        let info = self.info("memory")?;
        Ok(memory(&info, "used_memory")? - memory(&info, "mem_clients_normal")?)
    }

    pub fn info(&mut self, section: &str) -> RedisResult<InfoDict> {
        redis::cmd("INFO").arg(section).query(&mut self.connection)
    }
}

fn memory(info: &InfoDict, kind: &str) -> Result<u64> {
    info.get(kind).ok_or_else(|| format!("the server does not tell its {kind}").into())
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

pub fn client() -> Result<Client> {
    Ok(Client::open(url()?)?)
}

pub async fn semaphores() -> Result<SemaphoreClient> {
    Ok(SemaphoreClient::connect(&url()?).await?)
}

/// A connection as the crate has one for its commands.
pub async fn connection() -> Result<MultiplexedConnection> {
    connection_to(&client()?).await
}

/// The same, to wherever that client leads.
pub async fn connection_to(client: &Client) -> Result<MultiplexedConnection> {
    connect(client, Some(RESPONSE_TIMEOUT)).await
}

/// A connection for commands that block on the server: none of them is too late.
pub async fn blocking_connection() -> Result<MultiplexedConnection> {
    connect(&client()?, None).await
}

async fn connect(
    client: &Client,
    response_timeout: Option<Duration>,
) -> Result<MultiplexedConnection> {
    // The crate's connections hold nothing back that is to be sent.
    let prompt = TcpSettings::default().set_nodelay(true);
    let info = client.get_connection_info().clone().set_tcp_settings(prompt);
    let config = AsyncConnectionConfig::new()
        // Many connect at once in some benches.
        .set_connection_timeout(Some(Duration::from_secs(20)))
        .set_response_timeout(response_timeout);
    Ok(Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await?)
}

/// Has the server keep a script that is called by its SHA-1 from now on.
pub async fn load(connection: &mut MultiplexedConnection, source: &str) -> RedisResult<String> {
    redis::cmd("SCRIPT").arg("LOAD").arg(source).query_async(connection).await
}
