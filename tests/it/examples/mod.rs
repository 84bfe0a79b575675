//! Tests of the smaller examples. The tests start each example as a user does, and check the
//! results from outside.

mod autocomplete;
mod help;
mod hold;
mod market;
mod pages;
mod recipes;
mod textbook;

use std::process::{Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use test_support::example;
use test_support::observer::in_time;
use test_support::server::shared_admin_url;

/// Some examples do heavy work, and the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

fn command<A: AsRef<std::ffi::OsStr>>(name: &str, arguments: &[A]) -> Command {
    let mut command = Command::new(example::program(name));
    command.args(arguments).env("REDIS_URL", shared_admin_url()).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

async fn output_of<A: AsRef<std::ffi::OsStr>>(name: &str, arguments: &[A]) -> String {
    let output = timeout(PATIENCE, command(name, arguments).output()).await;
    let output = output.unwrap_or_else(|_| panic!("{name} never ended")).unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Checks that the example prints the reason and does nothing else.
async fn fails(name: &str, arguments: &[&str], status: i32, reason: &str) {
    let output: Output = in_time(name, command(name, arguments).output()).await.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {output:?}");
    assert!(errors.contains(reason), "{arguments:?}: {reason:?} is not in {errors:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
}

/// An example that runs until its input ends.
struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(name: &str, arguments: &[&str]) -> Self {
        let mut child = command(name, arguments).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Returns the next line, or `None` if the example has ended.
    async fn line(&mut self) -> Option<String> {
        in_time("a line", self.lines.next_line()).await.unwrap()
    }

    /// Reads until a line starts with `beginning`, and returns the rest of that line.
    async fn reads(&mut self, beginning: &str) -> String {
        while let Some(line) = self.line().await {
            if let Some(rest) = line.strip_prefix(beginning) {
                return rest.to_owned();
            }
        }
        panic!("it ended without {beginning:?}");
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().unwrap() as i32), signal).unwrap();
    }

    /// Closes the example's input.
    fn let_go(&mut self) {
        self.child.stdin = None;
    }
}
