//! Calls the protocol's scripts directly, for operations that the library does not have, for
//! example filling a semaphore with a million holders.

use std::ops::Range;

use redis::aio::MultiplexedConnection;
use redis::{Client, Cmd};
use redis_semaphore::ScriptRegistry;

use super::Result;
use super::server::{client, connection_to, evalsha, keys_of, unique_name};

/// The largest number of requests in a call.
const BATCH: u64 = 1000;

/// The lease and the heartbeat timeout in ms. Both are longer than any bench takes, because the
/// benches send no heartbeats, and refresh leases only to measure refreshes.
const LONG: u32 = 60 * 60 * 1000;

/// The first result in the short form of a reply, in which one entry stands for all requests.
const ALL: i64 = 3;

/// Checks the first result of a reply.
pub type Check = fn(&[i64]) -> bool;

pub const GRANTED: Check = |reply| matches!(reply[3], 1 | ALL);
pub const QUEUED: Check = |reply| reply[3] == 2;
pub const NOT_GRANTED: Check = |reply| reply[3] == 0;
pub const RELEASED: Check = |reply| matches!(reply[2], 1 | ALL);
pub const REFRESHED: Check = |reply| reply[2] > 0;
pub const UNCHECKED: Check = |_| true;

/// One semaphore, used directly through the protocol's scripts.
#[derive(Clone)]
pub struct Scripts {
    connection: MultiplexedConnection,
    keys: Vec<String>,
}

impl Scripts {
    pub async fn open(name: &str) -> Result<Self> {
        Self::at(&client()?, name).await
    }

    /// Opens a new semaphore with this number of holders.
    pub async fn with_holders(holders: u64) -> Result<Self> {
        let mut scripts = Self::open(&unique_name("holders")).await?;
        scripts.hold(0..holders).await?;
        Ok(scripts)
    }

    pub async fn at(client: &Client, name: &str) -> Result<Self> {
        let mut connection = connection_to(client).await?;
        ScriptRegistry::embedded().load(&mut connection).await?;
        Ok(Self { connection, keys: keys_of(name).into() })
    }

    /// Returns another semaphore, which uses the same connection.
    pub fn another(&self, name: &str) -> Self {
        Self { connection: self.connection.clone(), keys: keys_of(name).into() }
    }

    /// Adds the keys of groups to all further calls.
    pub fn with_groups(mut self) -> Self {
        let more = ["order", "turns"].map(|key| self.keys[0].replace("permits", key));
        self.keys.extend(more);
        self
    }

    /// Adds holders with these numbers.
    pub async fn hold(&mut self, numbers: Range<u64>) -> Result<()> {
        for ids in batches(numbers) {
            self.acquire(u32::MAX, &ids, GRANTED).await?;
        }
        Ok(())
    }

    /// Acquires in one call.
    pub async fn acquire(&mut self, limit: u32, ids: &[String], check: Check) -> Result<()> {
        let call = self.acquires(limit, ids, ids.len(), "wait");
        self.send(call, check).await
    }

    /// Releases in one call.
    pub async fn release(&mut self, ids: &[String]) -> Result<()> {
        let call = self.releases(ids, ids.len());
        self.send(call, RELEASED).await
    }

    /// Refreshes in one call.
    pub async fn refresh(&mut self, ids: &[String]) -> Result<()> {
        let mut call = self.call("refresh");
        for id in ids {
            call.arg(id).arg(LONG);
        }
        self.send(vec![call], REFRESHED).await
    }

    /// Returns calls with this number of requests each.
    pub fn acquires(
        &self,
        limit: u32,
        ids: &[String],
        in_a_call: usize,
        wait_mode: &str,
    ) -> Vec<Cmd> {
        let call = |ids: &[String]| {
            let mut cmd = self.call("acquire");
            cmd.arg("declare_if_unset").arg(limit).arg(LONG);
            for id in ids {
                cmd.arg(id).arg(wait_mode);
            }
            cmd
        };
        ids.chunks(in_a_call).map(call).collect()
    }

    pub fn releases(&self, ids: &[String], in_a_call: usize) -> Vec<Cmd> {
        let call = |ids: &[String]| {
            let mut cmd = self.call("release");
            cmd.arg("return").arg(ids);
            cmd
        };
        ids.chunks(in_a_call).map(call).collect()
    }

    /// Sends these calls together. Fails unless each reply passes the check.
    pub async fn send(&mut self, calls: Vec<Cmd>, check: Check) -> Result<()> {
        let mut pipe = redis::pipe();
        for call in calls {
            pipe.add_command(call);
        }
        let replies: Vec<Vec<i64>> = pipe.query_async(&mut self.connection).await?;
        match replies.iter().find(|reply| !check(reply)) {
            None => Ok(()),
            Some(other) => Err(format!("a script returned {other:?}").into()),
        }
    }

    /// Deletes the keys, because the server may be used for other purposes.
    pub async fn remove(mut self) -> Result<()> {
        Ok(redis::cmd("DEL").arg(&self.keys).exec_async(&mut self.connection).await?)
    }

    fn call(&self, name: &str) -> Cmd {
        let script = ScriptRegistry::embedded().script(name).expect("it is one of ours");
        evalsha(script.sha1(), &self.keys)
    }
}

/// Returns the ID for this number, with the length of the crate's IDs. The process ID in this ID is
/// fixed, because the length of a real process ID would affect the measurement.
pub fn numbered_id(number: u64) -> String {
    numbered_id_in("", number)
}

/// The same with a group: an empty text, or `GROUP,SHARE,CAP:`.
pub fn numbered_id_in(group: &str, number: u64) -> String {
    format!("N:bench-host.12345.12345678:1:{LONG}:{group}{number:022x}")
}

/// Returns the IDs for these numbers, in batches of one call each.
pub fn batches(numbers: Range<u64>) -> impl Iterator<Item = Vec<String>> {
    batches_of(numbers, numbered_id)
}

pub fn batches_of(
    numbers: Range<u64>,
    id: impl Fn(u64) -> String,
) -> impl Iterator<Item = Vec<String>> {
    let end = numbers.end;
    let starts = numbers.step_by(BATCH as usize);
    starts.map(move |start| (start..end.min(start + BATCH)).map(&id).collect())
}
