//! The cost of queuing one request and of a release that hands off to the head of the queue, while
//! many other requests wait: the caller's time, and the server's time for scripts.
//!
//! The bench fills the queue, and keeps its length, by calling the scripts directly.

use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};
use tokio::sync::Mutex;

use crate::support::Result;
use crate::support::arguments::only_tests;
use crate::support::baseline::Baseline;
use crate::support::pairs::time_pairs;
use crate::support::runner::Runner;
use crate::support::scripts::{GRANTED, QUEUED, Scripts, batches, numbered_id};
use crate::support::server::{Server, unique_name};

const SIZES: [u64; 5] = [10, 100, 1_000, 10_000, 100_000];

pub fn bench(criterion: &mut Criterion, runner: &Runner) -> Result<()> {
    let mut server = Server::connect()?;
    let mut baseline = None;
    let mut line = None;
    let mut group = criterion.benchmark_group("waiters");
    for waiters in if only_tests() { &SIZES[..2] } else { &SIZES[..] } {
        group.bench_function(BenchmarkId::new("baseline", waiters), |bencher| {
            let baseline = baseline.get_or_insert_with(|| runner.run(Baseline::connect()));
            bencher.iter_custom(|pairs| runner.run(time_pairs(baseline, pairs)));
        });
        group.bench_function(BenchmarkId::new("ours", waiters), |bencher| {
            let line = line.get_or_insert_with(|| runner.run(Line::open()));
            runner.run(Line::fill(line, *waiters));
            bencher.iter_custom(|pairs| runner.run(Line::time(line, pairs)));
        });
        group.bench_function(BenchmarkId::new("baseline_on_server", waiters), |bencher| {
            let baseline = baseline.get_or_insert_with(|| runner.run(Baseline::connect()));
            bencher.iter_custom(|pairs| {
                server.time_in_scripts(|| runner.run(time_pairs(baseline, pairs)))
            });
        });
        group.bench_function(BenchmarkId::new("ours_on_server", waiters), |bencher| {
            let line = line.get_or_insert_with(|| runner.run(Line::open()));
            runner.run(Line::fill(line, *waiters));
            bencher.iter_custom(|pairs| {
                server.time_in_scripts(|| runner.run(Line::time(line, pairs)))
            });
        });
    }
    group.finish();
    Ok(())
}

/// A semaphore with limit 1, and its waiters.
struct Line {
    scripts: Scripts,
    holder: u64,
    next: u64,
}

impl Line {
    async fn open() -> Result<Arc<Mutex<Self>>> {
        let mut scripts = Scripts::open(&unique_name("waiters")).await?;
        scripts.acquire(1, &[numbered_id(0)], GRANTED).await?;
        Ok(Arc::new(Mutex::new(Self { scripts, holder: 0, next: 1 })))
    }

    /// Queues requests until the queue has this length.
    async fn fill(line: &Mutex<Self>, waiters: u64) -> Result<()> {
        let line = &mut *line.lock().await;
        let end = line.holder + 1 + waiters;
        for ids in batches(line.next..end) {
            line.scripts.acquire(1, &ids, QUEUED).await?;
        }
        line.next = end;
        Ok(())
    }

    /// Returns the time for this many cycles in a task. Each cycle queues a request and releases a
    /// permit.
    async fn time(line: &Arc<Mutex<Self>>, pairs: u64) -> Result<Duration> {
        let line = line.clone();
        let task = tokio::spawn(async move {
            let mut line = line.lock().await;
            let started = Instant::now();
            for _ in 0..pairs {
                line.pair().await?;
            }
            Ok(started.elapsed())
        });
        task.await?
    }

    async fn pair(&mut self) -> Result<()> {
        self.scripts.acquire(1, &[numbered_id(self.next)], QUEUED).await?;
        self.next += 1;
        self.scripts.release(&[numbered_id(self.holder)]).await?;
        self.holder += 1;
        Ok(())
    }
}
