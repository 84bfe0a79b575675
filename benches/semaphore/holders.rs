//! The cost of an acquire and a release while many other holders exist: the caller's time, and the
//! server's time for scripts.

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion};

use crate::support::Result;
use crate::support::arguments::only_tests;
use crate::support::baseline::Baseline;
use crate::support::designs::blocking_list::BlockingList;
use crate::support::designs::fair::Fair;
use crate::support::designs::locked::Locked;
use crate::support::holders::Fill;
use crate::support::ours::Ours;
use crate::support::pairs::time_pairs;
use crate::support::runner::Runner;
use crate::support::server::{Server, unique_name};

const SIZES: [u64; 6] = [10, 100, 1_000, 10_000, 100_000, 1_000_000];
/// The largest number of holders for older designs, because each of their acquires copies a set of
/// this size.
const FEW: u64 = 10_000;

pub fn bench(criterion: &mut Criterion, runner: &Runner) -> Result<()> {
    let mut server = Server::connect()?;
    let mut baseline = Filled::<Baseline>::default();
    let mut ours = Filled::<Ours>::default();
    let mut fair = Filled::<Fair>::default();
    let mut locked = Filled::<Locked>::default();
    let mut blocking_list = Filled::<BlockingList>::default();

    let mut group = criterion.benchmark_group("holders");
    for holders in if only_tests() { &SIZES[..2] } else { &SIZES[..] } {
        let holders = *holders;
        baseline.bench(&mut group, runner, holders);
        ours.bench(&mut group, runner, holders);
        baseline.bench_server(&mut group, runner, &mut server, holders);
        ours.bench_server(&mut group, runner, &mut server, holders);
        if holders <= FEW {
            fair.bench(&mut group, runner, holders);
            locked.bench(&mut group, runner, holders);
            blocking_list.bench(&mut group, runner, holders);
            blocking_list.bench_server(&mut group, runner, &mut server, holders);
        }
    }
    group.finish();
    Ok(())
}

/// A semaphore that gets more holders from one measured point to the next.
struct Filled<D> {
    opened: Option<D>,
    holders: u64,
}

impl<D> Default for Filled<D> {
    fn default() -> Self {
        Self { opened: None, holders: 0 }
    }
}

impl<D: Fill> Filled<D> {
    fn bench(&mut self, group: &mut BenchmarkGroup<'_, WallTime>, runner: &Runner, holders: u64) {
        group.bench_function(BenchmarkId::new(D::NAME, holders), |bencher| {
            let design = self.with(runner, holders);
            bencher.iter_custom(|pairs| runner.run(time_pairs(design, pairs)));
        });
    }

    fn bench_server(
        &mut self,
        group: &mut BenchmarkGroup<'_, WallTime>,
        runner: &Runner,
        server: &mut Server,
        holders: u64,
    ) {
        let id = BenchmarkId::new(format!("{}_on_server", D::NAME), holders);
        group.bench_function(id, |bencher| {
            let design = self.with(runner, holders);
            bencher.iter_custom(|pairs| {
                server.time_in_scripts(|| runner.run(time_pairs(design, pairs)))
            });
        });
    }

    fn with(&mut self, runner: &Runner, holders: u64) -> &D {
        let open = || runner.run(D::open(&unique_name("holders"), u32::MAX));
        let design = self.opened.get_or_insert_with(open);
        if self.holders < holders {
            runner.run(design.add_holders(self.holders..holders));
            self.holders = holders;
        }
        design
    }
}
