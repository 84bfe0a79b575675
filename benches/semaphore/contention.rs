//! Grants per second within one process, with more tasks than permits.

use std::fmt;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, SamplingMode, Throughput};

use crate::support::crew::Crew;
use crate::support::design::Design;
use crate::support::runner::Runner;
use crate::support::server::unique_name;

#[derive(Clone, Copy)]
pub struct Point {
    limit: u32,
    pub tasks: usize,
    work_ms: u64,
}

pub const POINTS: [Point; 5] = [
    Point { limit: 1, tasks: 10, work_ms: 0 },
    Point { limit: 1, tasks: 100, work_ms: 0 },
    Point { limit: 10, tasks: 100, work_ms: 0 },
    Point { limit: 10, tasks: 100, work_ms: 5 },
    Point { limit: 10, tasks: 1000, work_ms: 5 },
];

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "limit {}, {} tasks, {} ms", self.limit, self.tasks, self.work_ms)
    }
}

/// Creates the group, which measures the time from the end of one task's turn to the end of the
/// next task's turn.
pub fn group(criterion: &mut Criterion) -> BenchmarkGroup<'_, WallTime> {
    let mut group = criterion.benchmark_group("contention");
    group.sampling_mode(SamplingMode::Flat).throughput(Throughput::Elements(1));
    group
}

pub fn bench<D: Design>(group: &mut BenchmarkGroup<'_, WallTime>, runner: &Runner, point: Point) {
    let start = async || {
        let design = D::open(&unique_name("contention"), point.limit).await?;
        Crew::start(design, point.tasks, Duration::from_millis(point.work_ms)).await
    };
    let mut started = None;
    group.bench_function(BenchmarkId::new(D::NAME, point), |bencher| {
        let crew = started.get_or_insert_with(|| runner.run(start()));
        bencher.iter_custom(|turns| runner.run(crew.time(turns)));
    });
}
