//! The waits for this crate's semaphore, and for the semaphore of the crate distributed-lock-redis.
//!
//! ```text
//! scripts/with-redis cargo bench --manifest-path benches/peers/Cargo.toml --bench waits
//! ```

mod distributed_lock;
#[path = "../waits/figures.rs"]
mod figures;
#[path = "../waits/rush.rs"]
mod rush;
#[path = "../support/mod.rs"]
mod support;

use clap::Parser;
use distributed_lock::DistributedLock;
use figures::Figures;
use rush::Rush;
use support::Result;
use support::arguments::Arguments;
use support::ours::Ours;
use support::relay::Relay;

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if !arguments.wants("waits") {
        return Ok(());
    }
    let mut all = Vec::new();
    for rush in Rush::all(arguments.only_tests()) {
        all.push(Figures::new(&rush, &rush.run::<Relay>().await?));
        all.push(Figures::new(&rush, &rush.run::<Ours>().await?));
        all.push(Figures::new(&rush, &rush.run::<DistributedLock>().await?));
    }
    figures::print(&all, arguments.json)
}
