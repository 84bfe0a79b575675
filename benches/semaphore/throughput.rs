//! How many pairs of acquire and release many tasks get through, with room for all.

use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, SamplingMode, Throughput};

use crate::support::crew::Crew;
use crate::support::design::Design;
use crate::support::runner::Runner;
use crate::support::server::unique_name;

pub const TASKS: [usize; 4] = [1, 16, 256, 2048];

/// The time is that of a round: as many pairs as there are tasks. Tasks come in waves, so less than
/// a round may be all acquires or all releases.
pub fn group<'a>(criterion: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group.sampling_mode(SamplingMode::Flat).sample_size(10);
    group.measurement_time(Duration::from_secs(3));
    group
}

pub fn bench<D: Design>(group: &mut BenchmarkGroup<'_, WallTime>, runner: &Runner, tasks: usize) {
    let start = async || {
        // More than there are tasks: nobody waits.
        let design = D::open(&unique_name("throughput"), 1_000_000).await?;
        Crew::start(design, tasks, Duration::ZERO).await
    };
    let mut started = None;
    group.throughput(Throughput::Elements(tasks as u64));
    group.bench_function(BenchmarkId::new(D::NAME, tasks), |bencher| {
        let crew = started.get_or_insert_with(|| runner.run(start()));
        bencher.iter_custom(|rounds| runner.run(crew.time(rounds * tasks as u64)));
    });
}
