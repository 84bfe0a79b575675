//! The time of an acquire/release cycle without any other task.

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion};

use crate::support::design::Design;
use crate::support::pairs::time_pairs;
use crate::support::runner::Runner;
use crate::support::server::unique_name;

pub fn group(criterion: &mut Criterion) -> BenchmarkGroup<'_, WallTime> {
    criterion.benchmark_group("uncontended")
}

pub fn bench<D: Design>(group: &mut BenchmarkGroup<'_, WallTime>, runner: &Runner) {
    let mut opened = None;
    group.bench_function(D::NAME, |bencher| {
        let design =
            opened.get_or_insert_with(|| runner.run(D::open(&unique_name("uncontended"), 1)));
        bencher.iter_custom(|pairs| runner.run(time_pairs(design, pairs)));
    });
}
