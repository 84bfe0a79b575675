//! The number of acquire/release cycles that many tasks complete without contention.

use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, SamplingMode, Throughput};

use crate::support::crew::Crew;
use crate::support::design::Design;
use crate::support::runner::Runner;
use crate::support::server::unique_name;

pub const TASKS: [usize; 4] = [1, 16, 256, 2048];

/// Creates the group, which measures the time of a round. A round has as many cycles as there are
/// tasks. All tasks make their calls at the same time, so a part of a round may contain only
/// acquires or only releases.
pub fn group(criterion: &mut Criterion) -> BenchmarkGroup<'_, WallTime> {
    let mut group = criterion.benchmark_group("throughput");
    group.sampling_mode(SamplingMode::Flat).sample_size(10);
    group.measurement_time(Duration::from_secs(3));
    group
}

pub fn bench<D: Design>(group: &mut BenchmarkGroup<'_, WallTime>, runner: &Runner, tasks: usize) {
    let start = async || {
        // The limit exceeds the number of tasks, so no task waits.
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
