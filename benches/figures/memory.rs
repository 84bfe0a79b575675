//! P10: what a permit and a waiter take on the server, beside a member of a sorted set.

use redis::aio::MultiplexedConnection;

use crate::support::Result;
use crate::support::figure::{Better, Figure};
use crate::support::rounds::{median, rounds_of};
use crate::support::scripts::{GRANTED, QUEUED, Scripts, batches, numbered_word};
use crate::support::server::{Server, connection, unique_name};

const ROUNDS: usize = 5;
const MANY: u64 = 100_000;

pub async fn p10() -> Result<Vec<Figure>> {
    let mut server = Server::connect()?;
    let (mut members, mut permits, mut waiters) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds_of(ROUNDS) {
        let (mut connection, key) = (connection().await?, unique_name("p10"));
        members.push(each(&mut server, add_members(&mut connection, &key)).await?);
        redis::cmd("DEL").arg(&key).exec_async(&mut connection).await?;
        let mut holders = Scripts::open(&unique_name("p10")).await?;
        permits.push(each(&mut server, hold(&mut holders)).await?);
        let mut queue = Scripts::open(&unique_name("p10")).await?;
        waiters.push(each(&mut server, wait(&mut queue)).await?);
        holders.remove().await?;
        queue.remove().await?;
    }
    let (member, permit, waiter) =
        (median(&mut members), median(&mut permits), median(&mut waiters));
    let figure = |id, what, value, target| {
        let at_most = Better::AtMost(target);
        Figure::of_value(id, what, "B", (member, value), at_most)
    };
    Ok(vec![
        figure("P10", "memory on the server: a permit", permit, 165.0),
        figure("P10w", "memory on the server: a waiter", waiter, 200.0),
    ])
}

/// Bytes for each of so many.
async fn each(server: &mut Server, add: impl Future<Output = Result<()>>) -> Result<f64> {
    let before = server.used_memory()? as f64;
    add.await?;
    Ok((server.used_memory()? as f64 - before) / MANY as f64)
}

async fn add_members(connection: &mut MultiplexedConnection, key: &str) -> Result<()> {
    for words in batches(0..MANY) {
        let members: Vec<_> = words.iter().map(|id| (1, id)).collect();
        redis::pipe().zadd_multiple(key, &members).exec_async(connection).await?;
    }
    Ok(())
}

async fn hold(scripts: &mut Scripts) -> Result<()> {
    for words in batches(0..MANY) {
        scripts.acquire(u32::MAX, &words, GRANTED).await?;
    }
    Ok(())
}

async fn wait(scripts: &mut Scripts) -> Result<()> {
    scripts.acquire(1, &[numbered_word(MANY)], GRANTED).await?;
    for words in batches(0..MANY) {
        scripts.acquire(1, &words, QUEUED).await?;
    }
    Ok(())
}
