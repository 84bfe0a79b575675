//! Worker processes of this program that share a semaphore, for `demo` and `load`.

use std::ffi::OsStr;
use std::io::BufRead;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::mpsc;

use crate::failure::{AnyError, Failure};
use crate::role;
use crate::server::kept_files;

/// Reports of the workers. Each report has the number of its worker.
pub type Reports<R> = mpsc::Receiver<Result<(usize, R), AnyError>>;
pub type Reporter<R> = mpsc::Sender<Result<(usize, R), AnyError>>;

/// Starts this program again, with the same options. The new process must end when its input ends,
/// so that it never outlives this process.
pub fn start(role: impl AsRef<OsStr>) -> Result<Child, Failure> {
    let failed = Failure::system("cannot start a worker process");
    Command::from(role::this_program().map_err(&failed)?)
        .arg0("redis-semaphore")
        .args(std::env::args_os().skip(1))
        .env(role::VARIABLE, role)
        .envs(kept_files())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // Ctrl-C must reach only the parent, which then ends the workers in order.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)
}

/// Passes the reports on until the worker has ended or the receiver is dropped.
pub async fn pass_on<R: Send + Sync + 'static>(
    worker: usize,
    output: ChildStdout,
    read: impl Fn(&str) -> Result<R, AnyError>,
    reports: &Reporter<R>,
) -> Result<(), AnyError> {
    let mut lines = BufReader::new(output).lines();
    while let Some(line) = lines.next_line().await? {
        reports.send(Ok((worker, read(&line)?))).await?;
    }
    Ok(())
}

/// In a worker: returns the lines that its parent sends.
pub fn input() -> mpsc::UnboundedReceiver<String> {
    let (sender, lines) = mpsc::unbounded_channel();
    // A separate thread reads, because a read from standard input cannot be canceled, and tokio
    // would wait for it.
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
