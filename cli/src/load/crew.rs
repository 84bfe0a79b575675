//! The crew: the worker processes, as their parent sees them.

use std::time::Duration;

use serde::Serialize;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::mpsc;

use crate::load::Result;
use crate::load::messages::{Order, Report, Window};
use crate::load::options::Load;
use crate::workers::{self, Reporter, Reports};

/// How long workers may take to release their permits when they must end.
const TIME_TO_LEAVE: Duration = Duration::from_secs(10);

pub struct Crew {
    /// The workers end when these inputs are closed.
    inputs: Vec<ChildStdin>,
    reports: Reports<Report>,
}

impl Crew {
    /// Starts the workers, which connect with the same options as this process.
    pub async fn start(asked: &Load) -> Result<Self> {
        let (sender, reports) = mpsc::channel(100);
        let mut inputs = Vec::new();
        for number in 0..asked.processes {
            let mut child = workers::start("worker")?;
            let mut input = child.stdin.take().expect("it was asked for");
            let output = child.stdout.take().expect("it was asked for");
            say(&mut input, &order(asked, number)).await?;
            inputs.push(input);
            tokio::spawn(pass_on_reports(number as usize, child, output, sender.clone()));
        }
        Ok(Self { inputs, reports })
    }

    /// Waits until all workers are connected.
    pub async fn ready(&mut self) -> Result<()> {
        for _ in 0..self.inputs.len() {
            match self.next_report().await? {
                Some((_, Report::Ready)) => {}
                other => return Err(format!("a worker sent {other:?} instead of Ready").into()),
            }
        }
        Ok(())
    }

    pub async fn begin(&mut self, window: Window) -> Result<()> {
        for input in &mut self.inputs {
            say(input, &window).await?;
        }
        Ok(())
    }

    /// Returns a report and the number of its worker, or `None` when all workers have ended without
    /// an error.
    pub async fn next_report(&mut self) -> Result<Option<(usize, Report)>> {
        self.reports.recv().await.transpose()
    }

    /// Ends the workers early. The workers still send their reports.
    pub fn end_early(&mut self) {
        self.inputs.clear();
    }

    /// Ends the workers and waits for them. A worker that does not end in time is killed.
    pub async fn dismiss(mut self) {
        self.end_early();
        let all_ended = async { while self.reports.recv().await.is_some() {} };
        let _ = tokio::time::timeout(TIME_TO_LEAVE, all_ended).await;
    }
}

fn order(asked: &Load, number: u32) -> Order {
    let Load { limit, tasks, processes, hold, lease, weight, .. } = *asked;
    // If the division leaves a remainder, the first processes get one task more.
    let tasks = tasks / processes + u32::from(number < tasks % processes);
    Order { name: asked.name.clone(), limit, lease, tasks, weight, hold }
}

async fn say(input: &mut ChildStdin, what: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    // If the worker has died, its exit status explains more than this error.
    let _ = input.write_all(&line).await;
    Ok(())
}

/// Passes on the reports of a worker. After the worker has ended, drops `reports` and returns.
async fn pass_on_reports(
    worker: usize,
    mut child: Child,
    output: ChildStdout,
    reports: Reporter<Report>,
) {
    let read = |line: &str| match serde_json::from_str(line)? {
        Report::Failed(reason) => Err(reason.into()),
        report => Ok(report),
    };
    let outcome = async {
        workers::pass_on(worker, output, read, &reports).await?;
        match child.wait().await? {
            status if status.success() => Ok(()),
            status => Err(format!("it ended unexpectedly ({status})").into()),
        }
    };
    let outcome: Result<()> = outcome.await;
    if let Err(error) = outcome {
        let error = format!("worker process {}: {error}", worker + 1);
        // The receiver may already be dropped.
        let _ = reports.send(Err(error.into())).await;
    }
}
