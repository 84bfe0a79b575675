//! The cost of refreshing the leases of many permits: one call for each 1,000 permits, as in the
//! crate.

use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput};

use crate::support::Result;
use crate::support::baseline::Baseline;
use crate::support::runner::Runner;
use crate::support::scripts::{GRANTED, Scripts, batches};
use crate::support::server::unique_name;

const PERMITS: [u64; 3] = [1, 1_000, 10_000];

pub fn bench(criterion: &mut Criterion, runner: &Runner) {
    let mut group = criterion.benchmark_group("renewal");
    for permits in PERMITS {
        group.throughput(Throughput::Elements(permits));
        let ids: Arc<[Vec<String>]> = batches(0..permits).collect();
        let mut baseline = None;
        group.bench_function(BenchmarkId::new("baseline", permits), |bencher| {
            let baseline = baseline.get_or_insert_with(|| runner.run(Baseline::connect()));
            bencher.iter_custom(|times| runner.run(time_baseline(baseline, &ids, times)));
        });
        let mut held = None;
        group.bench_function(BenchmarkId::new("ours", permits), |bencher| {
            let scripts = held.get_or_insert_with(|| runner.run(hold(&ids)));
            bencher.iter_custom(|times| runner.run(time_ours(scripts, &ids, times)));
        });
    }
    group.finish();
}

async fn hold(ids: &[Vec<String>]) -> Result<Scripts> {
    let mut scripts = Scripts::open(&unique_name("renewal")).await?;
    for batch in ids {
        scripts.acquire(u32::MAX, batch, GRANTED).await?;
    }
    Ok(scripts)
}

async fn time_ours(scripts: &Scripts, ids: &Arc<[Vec<String>]>, times: u64) -> Result<Duration> {
    let (mut scripts, ids) = (scripts.clone(), ids.clone());
    let task = tokio::spawn(async move {
        let started = Instant::now();
        for _ in 0..times {
            for batch in ids.iter() {
                scripts.refresh(batch).await?;
            }
        }
        Ok(started.elapsed())
    });
    task.await?
}

async fn time_baseline(
    baseline: &Baseline,
    ids: &Arc<[Vec<String>]>,
    times: u64,
) -> Result<Duration> {
    let (mut baseline, ids) = (baseline.clone(), ids.clone());
    let task = tokio::spawn(async move {
        let started = Instant::now();
        for _ in 0..times {
            for batch in ids.iter() {
                baseline.refresh(batch).await?;
            }
        }
        Ok(started.elapsed())
    });
    task.await?
}
