//! A worker: one of the processes that share the semaphore.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use redis_semaphore::{Semaphore, SemaphoreClient};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::failure::Failure;
use crate::limits::with_limit;
use crate::load::Result;
use crate::load::messages::{Log, Order, Report, Window};
use crate::load::turns::Work;
use crate::server::connect;
use crate::server::options::Server;
use crate::workers::{self, report};

/// The interval between reports of progress.
const TICK: Duration = Duration::from_millis(50);

pub async fn run(server: &Server) -> Result<()> {
    match work(server, &mut Input { lines: workers::input() }).await {
        Ok(logs) => logs.into_iter().try_for_each(|log| report(&Report::Log(log))),
        Err(error) => report(&Report::Failed(Failure::from(error).reason)),
    }
}

async fn work(server: &Server, input: &mut Input) -> Result<Vec<Log>> {
    let Some(order) = input.next::<Order>().await? else {
        return Ok(Vec::new());
    };
    let semaphores = connect(server, SemaphoreClient::builder()).await?;
    let semaphore = with_limit(semaphores.semaphore(&order.name).lease(order.lease), order.limit)?;
    report(&Report::Ready)?;
    let logs = match input.next::<Window>().await? {
        Some(window) => take_turns(semaphore, &order, window, input).await,
        None => Ok(Vec::new()),
    };
    // Dropped waits leave the queue in the background. `shutdown` waits until they have left.
    semaphores.shutdown().await;
    logs
}

/// Runs the tasks until the time is over, the input ends or a task fails. Returns when all tasks
/// have ended.
async fn take_turns(
    semaphore: Semaphore,
    order: &Order,
    window: Window,
    input: &mut Input,
) -> Result<Vec<Log>> {
    let work = Arc::new(Work {
        semaphore,
        weight: order.weight,
        hold: order.hold,
        is_over: CancellationToken::new(),
        acquires: 0.into(),
        waiting: 0.into(),
    });
    let mut tasks = JoinSet::new();
    let groups = order.groups.iter().cycle().skip(order.first_group % order.groups.len().max(1));
    let groups = groups.map(Some).chain(iter::repeat(None));
    for group in groups.take(order.tasks as usize) {
        let (work, group) = (work.clone(), group.cloned());
        tasks.spawn(async move { work.take_turns(group).await });
    }

    let time_left = Duration::from_nanos(window.end.saturating_sub(clock::now()));
    let end = tokio::time::Instant::now() + time_left;
    let mut ticks = tokio::time::interval(TICK);
    let mut logs = Vec::new();
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                // The report fails only if the parent has ended. The input then ends, too.
                let _ = report(&Report::Progress(work.progress()));
            }
            () = tokio::time::sleep_until(end), if !work.is_over.is_cancelled() => {
                work.is_over.cancel();
            }
            () = workers::closed(&mut input.lines), if !work.is_over.is_cancelled() => work.is_over.cancel(),
            task = tasks.join_next() => match task {
                Some(log) => {
                    let log = log?;
                    if log.is_err() {
                        work.is_over.cancel();
                    }
                    logs.push(log);
                }
                None => return logs.into_iter().collect(),
            },
        }
    }
}

/// The messages of the parent, one line each.
struct Input {
    lines: mpsc::UnboundedReceiver<String>,
}

impl Input {
    /// Returns the next message, or `None` if the parent has closed the input.
    async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let line = self.lines.recv().await;
        Ok(line.map(|line| serde_json::from_str(&line)).transpose()?)
    }
}
