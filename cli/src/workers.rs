//! Worker processes of this program that share a semaphore, for `demo` and `load`. The processes
//! exchange messages in pipes: JSON, one line each.

use std::fmt::Display;
use std::io::BufRead;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::mpsc;

use crate::failure::{AnyError, Failure};
use crate::output::say;
use crate::role;
use crate::server::kept_files;

/// How long workers may take to release their permits before they are killed.
const TIME_TO_LEAVE: Duration = Duration::from_secs(10);

type Result<T> = std::result::Result<T, AnyError>;

/// The worker processes, as their parent sees them.
pub struct Crew<R> {
    /// The first child is worker 1. Workers end when their input is closed.
    children: Vec<Child>,
    /// The reports, each with the index of its worker. After the last report of a worker: `None`.
    events: mpsc::Receiver<(usize, Result<Option<R>>)>,
    /// A worker that has closed its output, but may not have ended.
    ending: Option<usize>,
    killed: Option<usize>,
}

impl<R: DeserializeOwned + Send + Sync + 'static> Crew<R> {
    /// Starts this program again for each worker, with the same options and this role.
    pub fn start(workers: usize, role: impl Fn(usize) -> String) -> Result<Self> {
        let (sender, events) = mpsc::channel(100);
        let mut children = Vec::new();
        for worker in 0..workers {
            let mut child = start(&role(worker))?;
            let output = child.stdout.take().expect("the output is piped");
            tokio::spawn(pass_on(worker, output, sender.clone()));
            children.push(child);
        }
        Ok(Self { children, events, ending: None, killed: None })
    }

    pub async fn send(&mut self, worker: usize, message: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        if let Some(input) = &mut self.children[worker].stdin {
            // If the worker has died, its exit status explains more than this error.
            let _ = input.write_all(&line).await;
        }
        Ok(())
    }

    pub fn process_id(&self, worker: usize) -> Option<u32> {
        self.children[worker].id()
    }

    pub fn signal(&self, worker: usize, signal: Signal) -> Result<()> {
        let id = self.process_id(worker).ok_or_else(|| failure_of(worker, "it has ended"))?;
        Ok(kill(Pid::from_raw(id as i32), signal)?)
    }

    /// Kills a worker with SIGKILL, which no process can catch, and waits until it is dead.
    pub async fn kill(&mut self, worker: usize) -> Result<()> {
        self.killed = Some(worker);
        Ok(self.children[worker].kill().await?)
    }

    /// Returns the next report and the index of its worker, or `None` when all workers have ended.
    /// Fails if a worker has failed, unless this process killed the worker.
    pub async fn next_report(&mut self) -> Result<Option<(usize, R)>> {
        loop {
            if let Some(worker) = self.ending {
                let status = self.children[worker].wait().await?;
                self.ending = None;
                if !status.success() && self.killed != Some(worker) {
                    let ended = format!("it ended unexpectedly ({status})");
                    return Err(failure_of(worker, ended));
                }
            }
            match self.events.recv().await {
                Some((worker, event)) => match event.map_err(|error| failure_of(worker, error))? {
                    Some(report) => return Ok(Some((worker, report))),
                    None => self.ending = Some(worker),
                },
                None => return Ok(None),
            }
        }
    }

    /// Asks the workers to end. They still send their reports.
    pub fn end(&mut self) {
        self.children.iter_mut().for_each(|child| drop(child.stdin.take()));
    }

    /// Ends the workers, and waits for them. A worker that does not end in time is killed.
    pub async fn dismiss(&mut self) {
        self.end();
        let all_ended = async {
            while self.events.recv().await.is_some() {}
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

pub fn failure_of(worker: usize, reason: impl Display) -> AnyError {
    format!("worker process {}: {reason}", worker + 1).into()
}

/// Starts this program again, with the same options. The new process must end when its input ends,
/// so that it never outlives this process.
fn start(role: &str) -> std::result::Result<Child, Failure> {
    let failed = Failure::system("cannot start a worker process");
    Command::from(role::this_program().map_err(&failed)?)
        .arg0("redis-semaphore")
        .args(std::env::args_os().skip(1))
        .env(role::VARIABLE, role)
        .envs(kept_files())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // Ctrl-C must reach only the parent, which then closes the inputs of the workers.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)
}

/// Passes the reports of a worker on, until the worker closes its output.
async fn pass_on<R: DeserializeOwned>(
    worker: usize,
    output: ChildStdout,
    events: mpsc::Sender<(usize, Result<Option<R>>)>,
) {
    let mut lines = BufReader::new(output).lines();
    loop {
        let event = match lines.next_line().await {
            Ok(Some(line)) => serde_json::from_str(&line).map(Some).map_err(AnyError::from),
            Ok(None) => Ok(None),
            Err(error) => Err(error.into()),
        };
        let is_last = !matches!(event, Ok(Some(_)));
        // The receiver may already be dropped.
        if events.send((worker, event)).await.is_err() || is_last {
            return;
        }
    }
}

/// In a worker: sends a report to the parent. Fails if the parent has ended.
pub fn report(report: &impl Serialize) -> Result<()> {
    Ok(say(serde_json::to_string(report)?)?)
}

/// In a worker: returns the lines that its parent sends.
pub fn input() -> mpsc::UnboundedReceiver<String> {
    let (sender, lines) = mpsc::unbounded_channel();
    // A separate thread reads, because a read from standard input cannot be canceled. If tokio
    // read, the end of its runtime would wait for the read.
    std::thread::spawn(move || {
        let input = std::io::stdin().lock().lines();
        input.map_while(std::io::Result::ok).try_for_each(|line| sender.send(line))
    });
    lines
}

/// Waits until the parent has closed the input or has died.
pub async fn closed(input: &mut mpsc::UnboundedReceiver<String>) {
    while input.recv().await.is_some() {}
}
