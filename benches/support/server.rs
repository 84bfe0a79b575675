//! The measured server: its address, and its own statistics.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, Cmd, Connection, InfoDict, RedisResult};
use redis_semaphore::SemaphoreClient;

use super::Result;

/// The crate's default response timeout.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The server's work for all scripts of all clients, since its start.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    pub calls: u64,
    pub usec: u64,
}

impl Work {
    /// Returns the time for each call since an earlier moment, in µs.
    pub fn time_of_a_call_since(&self, before: Self) -> f64 {
        (self.usec - before.usec) as f64 / (self.calls - before.calls) as f64
    }
}

/// A connection for the statistics of the measured server. The benches do not measure this
/// connection.
pub struct Server {
    pub connection: Connection,
}

impl Server {
    pub fn connect() -> Result<Self> {
        let connection = client()?.get_connection()?;
        Ok(Self { connection })
    }

    /// Returns the number of calls of scripts by their SHA-1, and their time. A script counts as
    /// one call, however many commands it runs.
    pub fn scripts(&mut self) -> RedisResult<Work> {
        let stats = self.info("commandstats")?;
        let line: String = stats.get("cmdstat_evalsha").unwrap_or_default();
        Ok(Work { calls: number(&line, "calls"), usec: number(&line, "usec") })
    }

    pub fn used_memory(&mut self) -> Result<u64> {
        memory(&self.info("memory")?, "used_memory")
    }

    /// Returns the used memory without the buffers of connections, which change by themselves. Also
    /// empties the log of slow calls: on a busy machine, the log may hold 128 calls that took 10 ms
    /// or longer, and each of them uses about a KB.
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
    info.get(kind).ok_or_else(|| format!("the server does not report {kind}").into())
}

/// Reads `name=number` from a line such as `calls=5,usec=120,usec_per_call=24.00`.
fn number(line: &str, name: &str) -> u64 {
    let value = line.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    value.and_then(|value| value.parse().ok()).unwrap_or(0)
}

pub fn url() -> Result<String> {
    std::env::var("REDIS_URL")
        .map_err(|_| "REDIS_URL is not set: run scripts/with-redis cargo bench".into())
}

pub fn unique_name(purpose: &str) -> String {
    format!("bench-{purpose}-{}", uuid::Uuid::new_v4())
}

pub fn client() -> Result<Client> {
    Ok(Client::open(url()?)?)
}

pub async fn semaphores() -> Result<SemaphoreClient> {
    Ok(SemaphoreClient::connect(&url()?).await?)
}

/// Returns the keys of the semaphore with this name.
pub fn keys_of(name: &str) -> [String; 4] {
    ["permits", "queue", "clients", "state"].map(|key| format!("sem:{{{name}}}:{key}"))
}

/// Returns a call of the script with this SHA-1, without arguments.
pub fn evalsha(script: &str, keys: &[String]) -> Cmd {
    let mut cmd = redis::cmd("EVALSHA");
    cmd.arg(script).arg(keys.len()).arg(keys);
    cmd
}

/// Connects as the crate does for its commands.
pub async fn connection() -> Result<MultiplexedConnection> {
    connection_to(&client()?).await
}

pub async fn connection_to(client: &Client) -> Result<MultiplexedConnection> {
    connect(client, Some(RESPONSE_TIMEOUT)).await
}

/// Connects with this response timeout, or without one for blocking commands.
pub async fn connect(
    client: &Client,
    response_timeout: Option<Duration>,
) -> Result<MultiplexedConnection> {
    // The crate's connections send all data immediately, too.
    let prompt = TcpSettings::default().set_nodelay(true);
    let info = client.get_connection_info().clone().set_tcp_settings(prompt);
    let config = AsyncConnectionConfig::new()
        // In some benches, many clients connect at the same time.
        .set_connection_timeout(Some(Duration::from_secs(20)))
        .set_response_timeout(response_timeout);
    Ok(Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await?)
}

/// Loads a script, and returns its SHA-1, by which it is called from now on.
pub async fn load(connection: &mut MultiplexedConnection, source: &str) -> RedisResult<String> {
    redis::cmd("SCRIPT").arg("LOAD").arg(source).query_async(connection).await
}
