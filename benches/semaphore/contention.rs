//! Grants per second within one process, with more tasks than permits and without work. The figures
//! W measure tasks that work.

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
    tasks: usize,
}

pub const POINTS: [Point; 3] = [
    Point { limit: 1, tasks: 10 },
    Point { limit: 1, tasks: 100 },
    Point { limit: 10, tasks: 100 },
];

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "limit {}, {} tasks", self.limit, self.tasks)
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
        Crew::start(design, point.tasks, Duration::ZERO).await
    };
    let mut started = None;
    group.bench_function(BenchmarkId::new(D::NAME, point), |bencher| {
        let crew = started.get_or_insert_with(|| runner.run(start()));
        bencher.iter_custom(|turns| runner.run(crew.time(turns)));
    });
}
