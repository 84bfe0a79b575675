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

/// How long workers have to give back what they hold when they are told to end.
const TIME_TO_LEAVE: Duration = Duration::from_secs(10);

pub struct Crew {
    /// The workers take it as the sign to end when these are closed.
    inputs: Vec<ChildStdin>,
    reports: Reports<Report>,
}

impl Crew {
    /// The workers connect as this process does.
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

    /// Waits until all are connected.
    pub async fn ready(&mut self) -> Result<()> {
        for _ in 0..self.inputs.len() {
            match self.next_report().await? {
                Some((_, Report::Ready)) => {}
                other => return Err(format!("ready was expected, not {other:?}").into()),
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

    /// A report, and which worker it is from; `None` when all have ended well.
    pub async fn next_report(&mut self) -> Result<Option<(usize, Report)>> {
        self.reports.recv().await.transpose()
    }

    /// Has the workers end before their time. They report nevertheless.
    pub fn end_early(&mut self) {
        self.inputs.clear();
    }

    /// Has the workers end, and waits until they have. One that does not is killed.
    pub async fn dismiss(mut self) {
        self.end_early();
        let all_ended = async { while self.reports.recv().await.is_some() {} };
        let _ = tokio::time::timeout(TIME_TO_LEAVE, all_ended).await;
    }
}

fn order(asked: &Load, number: u32) -> Order {
    let Load { limit, tasks, processes, hold, lease, weight, .. } = *asked;
    // The first ones have one more each if it does not come out even.
    let tasks = tasks / processes + u32::from(number < tasks % processes);
    Order { name: asked.name.clone(), limit, lease, tasks, weight, hold }
}

async fn say(input: &mut ChildStdin, what: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    // If the worker has died, its exit status tells more than this does.
    let _ = input.write_all(&line).await;
    Ok(())
}

/// Ends, and with it the last of the senders, when the worker has ended.
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
            status => Err(format!("it died, {status}").into()),
        }
    };
    let outcome: Result<()> = outcome.await;
    if let Err(error) = outcome {
        let error = format!("process {} of the run: {error}", worker + 1);
        // Nobody may listen any more.
        let _ = reports.send(Err(error.into())).await;
    }
}
