//! The server's memory for each permit and each waiter.
//!
//! ```text
//! scripts/with-redis cargo bench --bench memory
//! ```

#[path = "../support/mod.rs"]
mod support;

use clap::Parser;
use serde::Serialize;
use support::Result;
use support::arguments::Arguments;
use support::design::Design;
use support::designs::blocking_list::BlockingList;
use support::designs::fair::Fair;
use support::holders::Fill;
use support::memory::{self, each};
use support::open_files;
use support::server::{Server, unique_name};
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if !arguments.wants("memory") {
        return Ok(());
    }
    open_files::allow_as_many_as_possible()?;
    // In the design with the blocking list, each waiter needs a connection, so fewer waiters are
    // measured.
    let (many, few) = if arguments.only_tests() { (1_000, 10) } else { (100_000, 1_000) };
    let mut memory = Memory { server: Server::connect()? };
    let member = memory::member(&mut memory.server, many).await?;
    let permits = memory::permit(&mut memory.server, many).await?;
    let waiters = memory::waiter(&mut memory.server, many).await?;
    let rows = [
        Row::new("member of a sorted set", member, Some(member)),
        Row::new("ours", permits, Some(waiters)),
        Row::new("fair", memory.permits::<Fair>(many).await?, None),
        Row::new(
            "blocking_list",
            memory.permits::<BlockingList>(many).await?,
            Some(memory.blocked(few).await?),
        ),
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

/// The memory for a permit and for a waiter, in bytes.
#[derive(Serialize)]
struct Row {
    what: &'static str,
    permit: u64,
    /// Designs that poll store nothing for a waiter.
    waiter: Option<u64>,
}

impl Row {
    fn new(what: &'static str, permit: f64, waiter: Option<f64>) -> Self {
        let whole = |bytes: f64| bytes.round() as u64;
        Self { what, permit: whole(permit), waiter: waiter.map(whole) }
    }
}

struct Memory {
    server: Server,
}

impl Memory {
    async fn permits<D: Fill>(&mut self, count: u64) -> Result<f64> {
        let mut design = D::open(&unique_name("memory"), u32::MAX).await?;
        each(&mut self.server, count, design.add_holders(0..count)).await
    }

    async fn blocked(&mut self, count: u64) -> Result<f64> {
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
        each(&mut self.server, count, all_block).await
    }
}
