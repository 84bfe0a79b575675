//! Calls the protocol's scripts directly, for operations that the library does not have, for
//! example filling a semaphore with a million holders.

use redis::ToRedisArgs;
use redis::aio::MultiplexedConnection;
use redis_semaphore::ScriptRegistry;

use super::Result;
use super::server::connection;

/// The largest number of requests in a call.
pub const BATCH: u64 = 1000;

/// The lease and the heartbeat timeout in ms. They are longer than any bench, because the benches
/// refresh no leases and send no heartbeats.
const LONG: u32 = 60 * 60 * 1000;

pub const GRANTED: i64 = 1;
pub const QUEUED: i64 = 2;

/// A client of the protocol without a subscription.
#[derive(Clone)]
pub struct Scripts {
    connection: MultiplexedConnection,
    keys: [String; 4],
}

impl Scripts {
    pub async fn open(name: &str) -> Result<Self> {
        let keys = ["permits", "queue", "clients", "state"];
        let keys = keys.map(|key| format!("sem:{{{name}}}:{key}"));
        Ok(Self { connection: connection().await?, keys })
    }

    /// Acquires. Fails unless each of these IDs gets the result `answer`.
    pub async fn acquire(&mut self, limit: u32, ids: &[String], answer: i64) -> Result<()> {
        let mut arguments = Vec::with_capacity(3 + 2 * ids.len());
        arguments.extend(["declare_if_unset".to_owned(), limit.to_string(), LONG.to_string()]);
        for id in ids {
            arguments.extend([id.clone(), "wait".to_owned()]);
        }
        let reply = self.call("acquire", &arguments).await?;
        match reply[3..] {
            // The short form of a reply has one result for all requests.
            [3, ..] => all_are(answer, [1].into_iter()),
            ref each => all_are(answer, each.chunks_exact(3).map(|request| request[0])),
        }
    }

    /// Releases. Fails unless all of these IDs held a permit.
    pub async fn release(&mut self, ids: &[String]) -> Result<()> {
        let arguments: Vec<&str> =
            ["return"].into_iter().chain(ids.iter().map(String::as_str)).collect();
        let reply = self.call("release", &arguments).await?;
        match reply[2..] {
            [3] => Ok(()),
            ref each => all_are(1, each.iter().copied()),
        }
    }

    /// Refreshes. Fails unless all of these IDs hold a permit.
    pub async fn refresh(&mut self, ids: &[String]) -> Result<()> {
        let lease = LONG.to_string();
        let arguments: Vec<&str> =
            ids.iter().flat_map(|id| [id.as_str(), lease.as_str()]).collect();
        let reply = self.call("refresh", &arguments).await?;
        all_are(1, reply[2..].iter().map(|end| i64::from(*end > 0)))
    }

    /// Deletes the keys, because the server may be used for other purposes.
    pub async fn remove(mut self) -> Result<()> {
        Ok(redis::cmd("DEL").arg(&self.keys).exec_async(&mut self.connection).await?)
    }

    async fn call<A: ToRedisArgs>(&mut self, name: &str, arguments: &[A]) -> Result<Vec<i64>> {
        let registry = ScriptRegistry::embedded();
        Ok(registry.run(&mut self.connection, name, &self.keys, arguments).await?)
    }
}

fn all_are(wanted: i64, mut answers: impl Iterator<Item = i64>) -> Result<()> {
    match answers.find(|answer| *answer != wanted) {
        None => Ok(()),
        Some(other) => Err(format!("a script answered {other} where {wanted} was due").into()),
    }
}

/// Returns the ID for this number, with the length of the crate's IDs. It contains a fixed process
/// ID, because the length of a real process ID would affect the measurement.
pub fn numbered_id(number: u64) -> String {
    format!("N:bench-host.12345.12345678:1:{LONG}:{number:022x}")
}

/// Returns the IDs for these numbers, in batches of one call each.
pub fn batches(numbers: std::ops::Range<u64>) -> impl Iterator<Item = Vec<String>> {
    let end = numbers.end;
    let starts = numbers.step_by(BATCH as usize);
    starts.map(move |start| (start..end.min(start + BATCH)).map(numbered_id).collect())
}
