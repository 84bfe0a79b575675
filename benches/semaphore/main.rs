//! The speed of the semaphore, beside its baseline and beside older designs.
//!
//! ```text
//! scripts/with-redis cargo bench --bench semaphore
//! ```
//!
//! `docs/benchmarks.md` describes the measurements and their results.

mod contention;
#[path = "../support/mod.rs"]
mod support;
mod throughput;
mod uncontended;

use support::Result;
use support::baseline::Baseline;
use support::designs::blocking_list::BlockingList;
use support::designs::fair::Fair;
use support::designs::locked::Locked;
use support::open_files;
use support::ours::Ours;
use support::relay::Relay;
use support::runner::{Runner, criterion};

fn main() -> Result<()> {
    open_files::allow_as_many_as_possible()?;
    let runner = Runner::new()?;
    let mut criterion = criterion();

    let mut group = uncontended::group(&mut criterion);
    uncontended::bench::<Baseline>(&mut group, &runner);
    uncontended::bench::<Ours>(&mut group, &runner);
    uncontended::bench::<Fair>(&mut group, &runner);
    uncontended::bench::<Locked>(&mut group, &runner);
    uncontended::bench::<BlockingList>(&mut group, &runner);
    group.finish();

    let mut group = throughput::group(&mut criterion);
    for tasks in throughput::TASKS {
        throughput::bench::<Baseline>(&mut group, &runner, tasks);
        throughput::bench::<Ours>(&mut group, &runner, tasks);
        throughput::bench::<Fair>(&mut group, &runner, tasks);
        throughput::bench::<BlockingList>(&mut group, &runner, tasks);
        // With more tasks, a round takes seconds, because the tasks compete for the lock of this
        // design.
        if tasks <= 256 {
            throughput::bench::<Locked>(&mut group, &runner, tasks);
        }
    }
    group.finish();

    let mut group = contention::group(&mut criterion);
    for point in contention::POINTS {
        contention::bench::<Relay>(&mut group, &runner, point);
        contention::bench::<Ours>(&mut group, &runner, point);
        contention::bench::<BlockingList>(&mut group, &runner, point);
        contention::bench::<Fair>(&mut group, &runner, point);
        contention::bench::<Locked>(&mut group, &runner, point);
    }
    group.finish();

    criterion.final_summary();
    Ok(())
}
