//! The waits for this crate's semaphore, and for the semaphore of the crate distributed-lock-redis.
//!
//! ```text
//! scripts/with-redis cargo bench --manifest-path benches/peers/Cargo.toml --bench waits
//! ```

mod distributed_lock;
#[path = "../support/mod.rs"]
mod support;

use clap::Parser;
use distributed_lock::DistributedLock;
use support::Result;
use support::arguments::Arguments;
use support::figure;
use support::ours::Ours;
use support::relay::Relay;
use support::rush::Rush;

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mut figures = Vec::new();
    for rush in Rush::all() {
        figures.push(rush.run::<Relay>().await?.figure()?);
        figures.push(rush.run::<Ours>().await?.figure()?);
        figures.push(rush.run::<DistributedLock>().await?.figure()?);
    }
    figure::print(&figures, arguments.json)
}
