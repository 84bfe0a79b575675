//! This crate's semaphore beside the semaphore of the crate distributed-lock-redis, and beside the
//! baseline.
//!
//! ```text
//! scripts/with-redis cargo bench --manifest-path benches/peers/Cargo.toml
//! ```

#[path = "../semaphore/contention.rs"]
mod contention;
mod distributed_lock;
#[path = "../support/mod.rs"]
mod support;
#[path = "../semaphore/throughput.rs"]
mod throughput;
#[path = "../semaphore/uncontended.rs"]
mod uncontended;

use distributed_lock::DistributedLock;
use support::Result;
use support::baseline::Baseline;
use support::ours::Ours;
use support::relay::Relay;
use support::runner::{Runner, criterion};

fn main() -> Result<()> {
    let runner = Runner::new()?;
    let mut criterion = criterion();

    let mut group = uncontended::group(&mut criterion);
    uncontended::bench::<Baseline>(&mut group, &runner);
    uncontended::bench::<Ours>(&mut group, &runner);
    uncontended::bench::<DistributedLock>(&mut group, &runner);
    group.finish();

    let mut group = throughput::group(&mut criterion);
    for tasks in throughput::TASKS {
        throughput::bench::<Baseline>(&mut group, &runner, tasks);
        throughput::bench::<Ours>(&mut group, &runner, tasks);
        throughput::bench::<DistributedLock>(&mut group, &runner, tasks);
    }
    group.finish();

    let mut group = contention::group(&mut criterion);
    for point in contention::POINTS {
        contention::bench::<Relay>(&mut group, &runner, point);
        contention::bench::<Ours>(&mut group, &runner, point);
        contention::bench::<DistributedLock>(&mut group, &runner, point);
    }
    group.finish();

    criterion.final_summary();
    Ok(())
}
