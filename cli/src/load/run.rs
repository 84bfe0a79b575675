//! A run: starts all workers together, waits until the time is over, and gathers their reports.

use std::pin::{Pin, pin};
use std::time::Duration;

use humantime::format_duration;
use redis_semaphore::{Semaphore, SemaphoreClient};
use tokio::time::{Instant, MissedTickBehavior};

use crate::clock;
use crate::failure::{AnyError, Failure};
use crate::interruption::interruption;
use crate::limits::{limit_of, with_limit};
use crate::load::Result;
use crate::load::groups::LoadGroup;
use crate::load::messages::{Log, Order, Progress, Report, Window};
use crate::load::options::Load;
use crate::load::progress::Display;
use crate::load::statistics::{Served, Statistics};
use crate::load::summary::Summary;
use crate::output::{note, report};
use crate::server::options::Server;
use crate::server::{connect, single};
use crate::workers::{Crew, failure_of};

/// The interval between lines of progress.
const TICK: Duration = Duration::from_secs(1);
/// How long workers may take to release their permits and to report, after the time is over.
const PATIENCE: Duration = Duration::from_secs(60);

pub async fn run<'a>(server: &Server, asked: &'a Load) -> Result<Summary<'a>> {
    let limit = check(server, asked).await?;
    let mut statistics = match single(server)? {
        Some(client) => Some(Statistics::connect(client).await?),
        None => None,
    };

    report(plan(asked));
    // From now on, an interrupted run must end its workers.
    let interrupted = pin!(interruption()?);
    let mut crew = Crew::start(asked.processes as usize, |_| "worker".to_owned())?;
    let outcome = measure(asked, limit, &mut crew, statistics.as_mut(), interrupted).await;
    crew.dismiss().await;
    outcome
}

/// Returns the options of the run, so that it can be repeated.
fn plan(asked: &Load) -> String {
    let Load { tasks, processes, weight, name, .. } = asked;
    let limit = asked.limit.map(|limit| format!("--limit {limit} ")).unwrap_or_default();
    let groups: Vec<_> = asked.groups.iter().map(LoadGroup::option).collect();
    let groups = match &groups[..] {
        [] => String::new(),
        groups => format!(" --groups {}", groups.join(",")),
    };
    let [time, hold, lease] = [asked.duration, asked.hold, asked.lease].map(format_duration);
    format!(
        "measuring for {time}: {limit}--tasks {tasks} --processes {processes} \
         --hold {hold} --lease {lease} --weight {weight}{groups} --name {name}"
    )
}

/// Checks the server and the arguments once, so that not every worker reports the same error.
/// Returns the limit.
async fn check(server: &Server, asked: &Load) -> Result<u32> {
    let semaphores = connect(server, SemaphoreClient::builder()).await?;
    let semaphore = with_limit(semaphores.semaphore(&asked.name).lease(asked.lease), asked.limit)?;
    let limit = limit_of_load(&semaphore, asked.limit).await?;
    asked.check_weight(limit)?;
    semaphores.shutdown().await;
    Ok(limit)
}

/// Returns the declared limit, or the effective limit if `declared` is `None`. Prints a note if a
/// runtime limit applies instead of the declared limit.
async fn limit_of_load(semaphore: &Semaphore, declared: Option<u32>) -> Result<u32> {
    let (now, name) = (semaphore.inspect_range(0..0, 0..0).await?, semaphore.name());
    if let Some(runtime) = now.runtime_limit.filter(|runtime| declared != Some(*runtime)) {
        note(format_args!(
            "semaphore {name}: the runtime limit {runtime} applies until `redis-semaphore limit \
             {name} clear`"
        ));
    }
    let none = || format!("semaphore {name} has no limit: declare one with --limit N");
    Ok(declared.or(limit_of(&now)).ok_or_else(|| Failure::usage(none()))?)
}

async fn measure<'a>(
    asked: &'a Load,
    limit: u32,
    crew: &mut Crew<Report>,
    mut statistics: Option<&mut Statistics>,
    mut interrupted: Pin<&mut impl Future<Output = u8>>,
) -> Result<Summary<'a>> {
    tokio::select! {
        ready = prepare(asked, crew) => ready?,
        signal = &mut interrupted => {
            return Err(Failure::new(128 + signal, "interrupted before the run began").into());
        }
    }
    let before = served(&mut statistics).await;
    let window = Window::from_now(asked.duration);
    for worker in 0..asked.processes {
        crew.send(worker as usize, &window).await?;
    }
    let (window, logs) = gather(asked, crew, window, interrupted).await?;
    let after = if before.is_some() { served(&mut statistics).await } else { None };
    let served = before.zip(after).and_then(|(before, after)| after.since(before));
    Ok(Summary::new(asked, limit, window, &logs, served))
}

/// Sends the workers their orders, and waits until all workers are connected.
async fn prepare(asked: &Load, crew: &mut Crew<Report>) -> Result<()> {
    for worker in 0..asked.processes {
        crew.send(worker as usize, &order(asked, worker)).await?;
    }
    for _ in 0..asked.processes {
        match crew.next_report().await? {
            Some((_, Report::Ready)) => {}
            Some((worker, other)) => return Err(unexpected(worker, other)),
            None => return Err("the worker processes have ended".into()),
        }
    }
    Ok(())
}

fn order(asked: &Load, worker: u32) -> Order {
    let Load { limit, tasks: all, processes, hold, lease, weight, .. } = *asked;
    // If the division leaves a remainder, the first processes get one task more.
    let before = |worker: u32| worker * (all / processes) + worker.min(all % processes);
    let (first, tasks) = (before(worker) as usize, before(worker + 1) - before(worker));
    let (name, groups) = (asked.name.clone(), asked.groups.clone());
    Order { name, limit, lease, tasks, weight, hold, first_group: first, groups }
}

fn unexpected(worker: usize, report: Report) -> AnyError {
    match report {
        Report::Failed(reason) => failure_of(worker, reason),
        other => failure_of(worker, format_args!("it sent an unexpected report: {other:?}")),
    }
}

/// Waits until all workers have ended. Returns the logs and the measured time. This time is shorter
/// than planned if the run was interrupted.
async fn gather(
    asked: &Load,
    crew: &mut Crew<Report>,
    mut window: Window,
    mut interrupted: Pin<&mut impl Future<Output = u8>>,
) -> Result<(Window, Vec<Log>)> {
    let mut display = Display::new(window.begin, window.end);
    let mut progress = vec![Progress::default(); asked.processes as usize];
    let mut logs = Vec::new();
    let mut is_interrupted = false;
    let mut ticks = tokio::time::interval_at(Instant::now() + TICK, TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut too_long = pin!(tokio::time::sleep(asked.duration + PATIENCE));
    loop {
        tokio::select! {
            report = crew.next_report() => match report? {
                Some((worker, Report::Progress(its))) => progress[worker] = its,
                Some((_, Report::Log(log))) => logs.push(log),
                Some((worker, other)) => return Err(unexpected(worker, other)),
                None => break,
            },
            _ = ticks.tick() => display.show(sum(&progress)),
            _ = &mut interrupted, if !is_interrupted => {
                is_interrupted = true;
                window.end = window.end.min(clock::now());
                crew.end();
                too_long.as_mut().reset(Instant::now() + PATIENCE);
            }
            () = &mut too_long => return Err("some worker processes did not end in time".into()),
        }
    }
    display.clear();
    if is_interrupted {
        report("interrupted: the results cover the time until then");
    }
    Ok((window, logs))
}

fn sum(progress: &[Progress]) -> Progress {
    progress.iter().fold(Progress::default(), |sum, its| Progress {
        acquires: sum.acquires + its.acquires,
        waiting: sum.waiting + its.waiting,
    })
}

/// Returns the server's statistics, or `None` if they cannot be read. The other results are still
/// useful.
async fn served(statistics: &mut Option<&mut Statistics>) -> Option<Served> {
    let statistics = statistics.as_mut()?;
    statistics
        .served()
        .await
        .inspect_err(|error| {
            report(format_args!(
                "no statistics from the server, so its values are missing: {error}"
            ))
        })
        .ok()
}
