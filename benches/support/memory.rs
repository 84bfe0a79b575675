//! The server's memory for a permit and for a waiter, in bytes.

use super::Result;
use super::scripts::{GRANTED, QUEUED, Scripts, batches, numbered_id};
use super::server::{Server, connection, unique_name};

/// Returns the memory that `add` uses for each of its `count` entries.
pub async fn each(
    server: &mut Server,
    count: u64,
    add: impl Future<Output = Result<()>>,
) -> Result<f64> {
    let before = server.used_memory()? as f64;
    add.await?;
    Ok((server.used_memory()? as f64 - before) / count as f64)
}

/// Returns the memory for a member of a sorted set, which is the baseline.
pub async fn member(server: &mut Server, count: u64) -> Result<f64> {
    let (mut connection, key) = (connection().await?, unique_name("memory"));
    let add = async {
        for ids in batches(0..count) {
            let members: Vec<_> = ids.iter().map(|id| (1, id)).collect();
            redis::pipe().zadd_multiple(&key, &members).exec_async(&mut connection).await?;
        }
        Ok(())
    };
    let bytes = each(server, count, add).await?;
    redis::cmd("DEL").arg(&key).exec_async(&mut connection).await?;
    Ok(bytes)
}

pub async fn permit(server: &mut Server, count: u64) -> Result<f64> {
    let mut scripts = Scripts::open(&unique_name("memory")).await?;
    let hold = async {
        for ids in batches(0..count) {
            scripts.acquire(u32::MAX, &ids, GRANTED).await?;
        }
        Ok(())
    };
    let bytes = each(server, count, hold).await?;
    scripts.remove().await?;
    Ok(bytes)
}

pub async fn waiter(server: &mut Server, count: u64) -> Result<f64> {
    let mut scripts = Scripts::open(&unique_name("memory")).await?;
    let wait = async {
        scripts.acquire(1, &[numbered_id(count)], GRANTED).await?;
        for ids in batches(0..count) {
            scripts.acquire(1, &ids, QUEUED).await?;
        }
        Ok(())
    };
    let bytes = each(server, count, wait).await?;
    scripts.remove().await?;
    Ok(bytes)
}
