//! How much memory the server takes for each permit and each waiter.
//!
//! ```text
//! scripts/with-redis cargo bench --bench memory
//! ```

#[path = "../support/mod.rs"]
mod support;

use clap::Parser;
use redis::aio::MultiplexedConnection;
use serde::Serialize;
use support::Result;
use support::arguments::Arguments;
use support::design::Design;
use support::designs::blocking_list::BlockingList;
use support::designs::fair::Fair;
use support::holders::Fill;
use support::open_files;
use support::ours::Ours;
use support::scripts::{GRANTED, QUEUED, Scripts, batches, numbered_word};
use support::server::{Server, connection, unique_name};
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if !arguments.wants("memory") {
        return Ok(());
    }
    open_files::allow_as_many_as_possible()?;
    // Each waiter of the blocking list is a connection, so there are fewer of those.
    let (many, few) = if arguments.only_tests() { (1_000, 10) } else { (100_000, 1_000) };
    let mut memory = Memory { server: Server::connect()? };
    let member = memory.members(many).await?;
    let rows = [
        Row { what: "member of a sorted set", permit: member, waiter: Some(member) },
        Row {
            what: "ours",
            permit: memory.permits::<Ours>(many).await?,
            waiter: Some(memory.waiters(many).await?),
        },
        Row { what: "fair", permit: memory.permits::<Fair>(many).await?, waiter: None },
        Row {
            what: "blocking_list",
            permit: memory.permits::<BlockingList>(many).await?,
            waiter: Some(memory.blocked(few).await?),
        },
    ];
    if arguments.json {
        println!("{}", serde_json::to_string(&rows)?);
        return Ok(());
    }
    println!("\nmemory on the server, bytes each");
    println!("{:24} {:>8} {:>8}", "", "permit", "waiter");
    for Row { what, permit, waiter } in rows {
        let waiter = waiter.map_or("-".to_owned(), |waiter| waiter.to_string());
        println!("{what:24} {permit:8} {waiter:>8}");
    }
    Ok(())
}

/// What each takes, in bytes.
#[derive(Serialize)]
struct Row {
    what: &'static str,
    permit: u64,
    /// Who polls leaves nothing on the server.
    waiter: Option<u64>,
}

struct Memory {
    server: Server,
}

impl Memory {
    /// What one of so many takes.
    async fn each(&mut self, count: u64, add: impl Future<Output = Result<()>>) -> Result<u64> {
        let before = self.server.used_memory()?;
        add.await?;
        Ok((self.server.used_memory()? - before) / count)
    }

    async fn members(&mut self, count: u64) -> Result<u64> {
        let connection = &mut connection().await?;
        self.each(count, add_members(connection, count)).await
    }

    async fn permits<D: Fill>(&mut self, count: u64) -> Result<u64> {
        let mut design = D::open(&unique_name("memory"), u32::MAX).await?;
        self.each(count, design.add_holders(0..count)).await
    }

    async fn waiters(&mut self, count: u64) -> Result<u64> {
        let mut scripts = Scripts::open(&unique_name("memory")).await?;
        let all_queue = async {
            scripts.acquire(1, &[numbered_word(0)], GRANTED).await?;
            for ids in batches(1..1 + count) {
                scripts.acquire(1, &ids, QUEUED).await?;
            }
            Ok(())
        };
        self.each(count, all_queue).await
    }

    async fn blocked(&mut self, count: u64) -> Result<u64> {
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
        self.each(count, all_block).await
    }
}

async fn add_members(connection: &mut MultiplexedConnection, count: u64) -> Result<()> {
    let key = &unique_name("memory");
    for ids in batches(0..count) {
        let members: Vec<_> = ids.iter().map(|id| (1, id)).collect();
        redis::pipe().zadd_multiple(key, &members).exec_async(connection).await?;
    }
    Ok(())
}
