//! The cost of the semaphore, beside its baseline and beside older designs.
//!
//! ```text
//! scripts/with-redis cargo bench --bench semaphore
//! ```
//!
//! `docs/benchmarks.md` describes the measurements and their results.

mod contention;
mod hand_off;
mod holders;
mod renewal;
#[path = "../support/mod.rs"]
mod support;
mod throughput;
mod uncontended;
mod waiters;

use std::time::Duration;

use criterion::Criterion;
use support::Result;
use support::apart::Apart;
use support::baseline::Baseline;
use support::designs::blocking_list::BlockingList;
use support::designs::fair::Fair;
use support::designs::locked::Locked;
use support::open_files;
use support::ours::Ours;
use support::relay::Relay;
use support::runner::Runner;

fn main() -> Result<()> {
    open_files::allow_as_many_as_possible()?;
    let runner = Runner::new()?;
    if let Some(outcome) = hand_off::as_partner(&runner) {
        return outcome;
    }
    // Each point takes only about three seconds, because many points are more useful than many
    // digits.
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .nresamples(5_000)
        .configure_from_args();

    let mut group = uncontended::group(&mut criterion);
    uncontended::bench::<Baseline>(&mut group, &runner);
    uncontended::bench::<Ours>(&mut group, &runner);
    uncontended::bench::<Fair>(&mut group, &runner);
    uncontended::bench::<Locked>(&mut group, &runner);
    uncontended::bench::<BlockingList>(&mut group, &runner);
    group.finish();

    let mut group = throughput::group(&mut criterion, "throughput");
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

    // Many processes with one task each: requests are not batched, so each request is a call.
    let mut group = throughput::group(&mut criterion, "clients");
    for clients in [16, 128] {
        throughput::bench::<Apart<Baseline>>(&mut group, &runner, clients);
        throughput::bench::<Apart<Ours>>(&mut group, &runner, clients);
    }
    group.finish();

    let mut group = contention::group(&mut criterion);
    for point in contention::POINTS {
        contention::bench::<Relay>(&mut group, &runner, point);
        contention::bench::<Ours>(&mut group, &runner, point);
        contention::bench::<BlockingList>(&mut group, &runner, point);
        // If more tasks poll, hardly any task gets a permit: see the bench `waits`.
        if point.tasks <= 100 {
            contention::bench::<Fair>(&mut group, &runner, point);
        }
        contention::bench::<Locked>(&mut group, &runner, point);
    }
    group.finish();

    hand_off::bench(&mut criterion, &runner);
    holders::bench(&mut criterion, &runner)?;
    waiters::bench(&mut criterion, &runner)?;
    renewal::bench(&mut criterion, &runner);
    criterion.final_summary();
    Ok(())
}
