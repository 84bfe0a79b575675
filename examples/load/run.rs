//! A run: has the workers begin together, waits until time is over, and gathers what they did.

use std::pin::{Pin, pin};
use std::time::Duration;

use redis_semaphore::Semaphores;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior};

use crate::crew::Crew;
use crate::messages::{Log, Progress, Report, Window};
use crate::options::Options;
use crate::progress::Display;
use crate::server::{Served, Server};
use crate::summary::Summary;
use crate::{Result, clock};

/// How often to show how it goes.
const TICK: Duration = Duration::from_secs(1);
/// How long workers may take to give back what they hold, and to report, when time is over.
const PATIENCE: Duration = Duration::from_secs(60);

pub async fn run(options: &Options) -> Result<Summary<'_>> {
    let interrupted = pin!(interruption()?);
    check(options).await?;
    let mut server = Server::connect(&options.url).await?;

    let mut crew = Crew::start(options).await?;
    let outcome = measure(options, &mut crew, &mut server, interrupted).await;
    crew.dismiss().await;
    outcome
}

/// What is wrong with server or arguments is told once, and not by every worker.
async fn check(options: &Options) -> Result<()> {
    let semaphores = Semaphores::connect(&options.url).await?;
    let lease = Duration::from_millis(options.lease_ms.into());
    semaphores.semaphore(&options.name).limit(options.limit).lease(lease).build()?;
    semaphores.shutdown().await;
    Ok(())
}

async fn measure<'a>(
    options: &'a Options,
    crew: &mut Crew,
    server: &mut Server,
    mut interrupted: Pin<&mut impl Future<Output = ()>>,
) -> Result<Summary<'a>> {
    tokio::select! {
        ready = crew.ready() => ready?,
        () = &mut interrupted => return Err("interrupted before it began".into()),
    }
    let before = served(server).await;
    let window = Window::from_now(options.seconds);
    crew.begin(window).await?;
    let (window, logs) = gather(options, crew, window, interrupted).await?;
    let after = if before.is_some() { served(server).await } else { None };
    let served = before.zip(after).and_then(|(before, after)| after.since(before));
    Ok(Summary::new(options, window, &logs, served))
}

/// Until all workers have ended. Answers with the time that was measured, which may be shorter than
/// it was meant to be.
async fn gather(
    options: &Options,
    crew: &mut Crew,
    mut window: Window,
    mut interrupted: Pin<&mut impl Future<Output = ()>>,
) -> Result<(Window, Vec<Log>)> {
    let mut display = Display::new(window.begin, window.end);
    let mut progress = vec![Progress::default(); options.processes as usize];
    let mut logs = Vec::new();
    let mut is_interrupted = false;
    let mut ticks = tokio::time::interval_at(Instant::now() + TICK, TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut too_long =
        pin!(tokio::time::sleep(Duration::from_secs(options.seconds.into()) + PATIENCE));
    loop {
        tokio::select! {
            report = crew.next_report() => match report? {
                Some((worker, Report::Progress(its))) => progress[worker] = its,
                Some((_, Report::Log(log))) => logs.push(log),
                Some((_, other)) => return Err(format!("{other:?} was not expected").into()),
                None => break,
            },
            _ = ticks.tick() => display.show(sum(&progress)),
            () = &mut interrupted, if !is_interrupted => {
                is_interrupted = true;
                window.end = window.end.min(clock::now());
                crew.end_early();
            }
            () = &mut too_long => return Err("not all processes have ended in time".into()),
        }
    }
    display.clear();
    if is_interrupted {
        eprintln!("interrupted: these are the results until then");
    }
    Ok((window, logs))
}

fn sum(progress: &[Progress]) -> Progress {
    progress.iter().fold(Progress::default(), |sum, its| Progress {
        acquires: sum.acquires + its.acquires,
        waiting: sum.waiting + its.waiting,
    })
}

/// What can be measured without that is worth a run all the same.
async fn served(server: &mut Server) -> Option<Served> {
    server.served().await.inspect_err(|error| eprintln!("no numbers from the server: {error}")).ok()
}

/// Ends with the first signal that asks this program to end.
fn interruption() -> Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    })
}
