//! A page in the older design: a script that refuses or grants, and a list to wait at.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use redis_semaphore::redis::aio::MultiplexedConnection;
use redis_semaphore::redis::{AsyncConnectionConfig, Client, Script, cmd, pipe};

use crate::database::Database;
use crate::report::Report;
use crate::start::{self, Result};

const TIMEOUT_MS: u32 = 30_000;

pub async fn query(database: &Database, page: u32, name: &str, limit: u32) -> Result<Report> {
    let asked = Instant::now();
    let mut redis = connect().await?;
    let [times, holders, counter, wake_ups] = keys(name);
    let id = std::process::id();
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64;
    let script = Script::new(include_str!("old.lua"));
    let mut call = script.key(&times);
    call.key(&holders).key(counter).arg(id).arg(now).arg(TIMEOUT_MS).arg(limit);
    let is_granted: bool = call.invoke_async(&mut redis).await?;
    if !is_granted {
        // Whatever is popped counts as the permit of somebody who released.
        cmd("BRPOP").arg(&wake_ups).arg(0).exec_async(&mut redis).await?;
    }
    let report = Report::of_query(database, page, asked).await?;
    let mut release = pipe();
    release.atomic().zrem(times, id).zrem(holders, id).lpush(wake_ups, id);
    release.exec_async(&mut redis).await?;
    Ok(report)
}

pub async fn clear(name: &str) -> Result<()> {
    Ok(cmd("DEL").arg(&keys(name)).exec_async(&mut connect().await?).await?)
}

pub async fn left_over(name: &str) -> Result<u32> {
    let [.., wake_ups] = keys(name);
    Ok(cmd("LLEN").arg(wake_ups).query_async(&mut connect().await?).await?)
}

fn keys(name: &str) -> [String; 4] {
    ["times", "holders", "counter", "wake-ups"].map(|key| format!("{name}:{key}"))
}

/// Waits at the list without end.
async fn connect() -> Result<MultiplexedConnection> {
    let settings = AsyncConnectionConfig::new().set_response_timeout(None);
    let client = Client::open(start::redis_url()?)?;
    Ok(client.get_multiplexed_async_connection_with_config(&settings).await?)
}
