//! The crew: the worker processes, as the supervisor sees them.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, ChildStdout};
use tokio::sync::mpsc;

use crate::demo::Result;
use crate::demo::moment::Moment;
use crate::demo::plan::WORKERS;
use crate::demo::report::Report;
use crate::workers::{self, Reporter, Reports};

/// How long workers may take to release their permits before they are killed.
const TIME_TO_LEAVE: Duration = Duration::from_secs(3);

pub struct Crew {
    /// The first child is worker 1.
    children: Vec<Child>,
    reports: Reports<Report>,
}

/// Returns the client name of a worker, which `inspect` shows.
pub fn name(worker: usize) -> String {
    format!("worker-{}", worker + 1)
}

pub fn worker_of(name: &str) -> Option<usize> {
    (0..WORKERS).find(|worker| self::name(*worker) == name)
}

impl Crew {
    /// Starts this program again for each worker.
    pub fn start(prefix: &str) -> Result<Self> {
        let (sender, reports) = mpsc::channel(100);
        let mut children = Vec::new();
        for worker in 0..WORKERS {
            let mut child = workers::start(format!("{} {prefix}", name(worker)))?;
            let output = child.stdout.take().expect("it was asked for");
            tokio::spawn(pass_on_reports(worker, output, sender.clone()));
            children.push(child);
        }
        Ok(Self { children, reports })
    }

    /// Returns the next report and the number of its worker, or `None` when all workers have ended.
    pub async fn next_report(&mut self) -> Option<Result<(usize, Report)>> {
        self.reports.recv().await
    }

    pub fn process_id(&self, worker: usize) -> Option<u32> {
        self.children[worker].id()
    }

    pub fn signal(&self, worker: usize, signal: Signal) -> Result<()> {
        let id = self.process_id(worker).ok_or_else(|| format!("{} has ended", name(worker)))?;
        Ok(kill(Pid::from_raw(id as i32), signal)?)
    }

    /// Sends SIGKILL, which no process can catch. Returns the moment when the worker was dead.
    pub async fn kill(&mut self, worker: usize) -> Result<Moment> {
        self.children[worker].kill().await?;
        Ok(Moment::now())
    }

    /// Fails if a worker other than the killed worker has failed.
    pub fn check(&mut self, killed: Option<usize>) -> Result<()> {
        for (worker, child) in self.children.iter_mut().enumerate() {
            match child.try_wait()? {
                Some(status) if !status.success() && Some(worker) != killed => {
                    let name = name(worker);
                    return Err(format!("{name} failed: {status}").into());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Ends the workers, and waits for them.
    pub async fn stop(&mut self) {
        for child in &mut self.children {
            drop(child.stdin.take()); // Workers end when their input is closed.
        }
        let all_ended = async {
            for child in &mut self.children {
                let _ = child.wait().await;
            }
        };
        if tokio::time::timeout(TIME_TO_LEAVE, all_ended).await.is_err() {
            for child in &mut self.children {
                let _ = child.kill().await;
            }
        }
    }
}

/// Passes on the reports of a worker. After the worker has ended, drops `reports` and returns.
async fn pass_on_reports(worker: usize, output: ChildStdout, reports: Reporter<Report>) {
    if let Err(error) = workers::pass_on(worker, output, str::parse, &reports).await {
        // The receiver may already be dropped.
        let _ = reports.send(Err(error)).await;
    }
}
