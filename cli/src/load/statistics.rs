//! The server's statistics of its own work.

use redis_semaphore::redis::aio::MultiplexedConnection;
use redis_semaphore::redis::{Client, InfoDict, RedisResult, cmd};

use crate::server::connection_beside;

/// The server's work for all scripts of all clients since its statistics were reset.
#[derive(Debug, Clone, Copy)]
pub struct Served {
    pub calls: u64,
    pub us: u64,
}

impl Served {
    /// Returns the work since `before`. Returns `None` if a number is lower than in `before`,
    /// because the server's statistics were reset.
    pub fn since(self, before: Self) -> Option<Self> {
        let calls = self.calls.checked_sub(before.calls)?;
        Some(Self { calls, us: self.us.checked_sub(before.us)? })
    }
}

/// Reads the server's statistics over a connection that the run does not measure.
pub struct Statistics {
    connection: MultiplexedConnection,
}

impl Statistics {
    pub async fn connect(client: Client) -> RedisResult<Self> {
        Ok(Self { connection: connection_beside(&client).await? })
    }

    /// Returns the statistics. A script counts as one call, however many commands it runs. Most
    /// calls are EVALSHA. If the server has lost a script, the client sends the script with EVAL.
    pub async fn served(&mut self) -> RedisResult<Served> {
        let stats: InfoDict =
            cmd("INFO").arg("commandstats").query_async(&mut self.connection).await?;
        let mut served = Served { calls: 0, us: 0 };
        for command in ["cmdstat_evalsha", "cmdstat_eval"] {
            let line: String = stats.get(command).unwrap_or_default();
            served.calls += number(&line, "calls");
            served.us += number(&line, "usec");
        }
        Ok(served)
    }
}

/// Reads `name=number` from a line such as `calls=5,usec=120,usec_per_call=24.00`.
fn number(line: &str, name: &str) -> u64 {
    let value = line.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    value.and_then(|value| value.parse().ok()).unwrap_or(0)
}
