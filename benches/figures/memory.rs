//! P10: the server's memory for a permit and for a waiter, compared with a member of a sorted set.
//! G6: the memory for a waiter with a group, compared with a waiter without a group. M: the same as
//! P10 for other designs. Designs that poll store nothing for a waiter.

use tokio::task::JoinSet;

use crate::support::Result;
use crate::support::arguments::only_tests;
use crate::support::design::Design;
use crate::support::designs::blocking_list::BlockingList;
use crate::support::designs::fair::Fair;
use crate::support::figure::Figure;
use crate::support::line::Line;
use crate::support::rounds::{Rounds, median, rounds_of};
use crate::support::scripts::{Scripts, batches};
use crate::support::server::{Server, connection, unique_name};

const ROUNDS: usize = 5;
/// The number of groups of the waiters.
const TENANTS: u64 = 100;

pub async fn p10() -> Result<Vec<Figure>> {
    let (mut members, mut permits, mut waiters) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds_of(ROUNDS) {
        members.push(member().await?);
        permits.push(permit().await?);
        waiters.push(waiter(0).await?);
    }
    let member = median(&mut members);
    let figure =
        |id, what, mut bytes: Vec<f64>| Figure::new(id, what, "B", (member, median(&mut bytes)));
    Ok(vec![
        figure("P10", "memory on the server: a permit", permits).value_at_most(165.0),
        figure("P10w", "memory on the server: a waiter", waiters).value_at_most(200.0),
    ])
}

pub async fn g6() -> Result<Vec<Figure>> {
    let mut rounds = Rounds::default();
    for _ in 0..rounds_of(ROUNDS) {
        rounds.add((waiter(0).await?, waiter(TENANTS).await?));
    }
    let what = "memory: a waiter, without groups or with groups";
    Ok(vec![Figure::of("G6", what, "B", &rounds).value_at_most(320.0)])
}

pub async fn m() -> Result<Vec<Figure>> {
    let member = member().await?;
    let figure = |id, what, bytes| Figure::new(id, what, "B", (member, bytes));
    Ok(vec![
        figure("M1", "memory on the server: fair, a permit", permit_of::<Fair>().await?),
        figure("M2", "memory: blocking list, a permit", permit_of::<BlockingList>().await?),
        figure("M3", "memory: blocking list, a waiter", waiter_of_blocking_list().await?),
    ])
}

/// Returns the number of entries that are measured.
fn many() -> u64 {
    if only_tests() { 1_000 } else { 100_000 }
}

/// Returns the memory that `add` uses for each of its `count` entries, in bytes.
async fn each(count: u64, add: impl Future<Output = Result<()>>) -> Result<f64> {
    let mut server = Server::connect()?;
    let before = server.used_memory()? as f64;
    add.await?;
    Ok((server.used_memory()? as f64 - before) / count as f64)
}

async fn member() -> Result<f64> {
    let (mut connection, key) = (connection().await?, unique_name("memory"));
    let add = async {
        for ids in batches(0..many()) {
            let members: Vec<_> = ids.iter().map(|id| (1, id)).collect();
            redis::pipe().zadd_multiple(&key, &members).exec_async(&mut connection).await?;
        }
        Ok(())
    };
    let bytes = each(many(), add).await?;
    redis::cmd("DEL").arg(&key).exec_async(&mut connection).await?;
    Ok(bytes)
}

async fn permit() -> Result<f64> {
    let mut scripts = Scripts::open(&unique_name("memory")).await?;
    let bytes = each(many(), scripts.hold(0..many())).await?;
    scripts.remove().await?;
    Ok(bytes)
}

async fn waiter(groups: u64) -> Result<f64> {
    let mut line = Line::with_groups(&unique_name("memory"), 1, groups).await?;
    let bytes = each(many(), line.fill(many())).await?;
    line.scripts.remove().await?;
    Ok(bytes)
}

async fn permit_of<D: Design>() -> Result<f64> {
    let mut design = D::open(&unique_name("memory"), u32::MAX).await?;
    each(many(), design.add_holders(0..many())).await
}

/// Measures fewer waiters, because each of them needs a connection.
async fn waiter_of_blocking_list() -> Result<f64> {
    let count = many() / 100;
    let mut design = BlockingList::open(&unique_name("memory"), 1).await?;
    design.acquire().await?;
    let mut server = Server::connect()?;
    let mut waiters = JoinSet::new();
    let all_block = async {
        for _ in 0..count {
            let mut waiter = design.for_task().await?;
            waiters.spawn(async move { waiter.acquire().await.map(drop) });
        }
        while server.info("clients")?.get("blocked_clients") != Some(count) {
            tokio::task::yield_now().await;
        }
        Ok(())
    };
    each(count, all_block).await
}
