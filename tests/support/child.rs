//! Runs this test program as another process, which executes one test. The environment contains the
//! parameters of that test.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::sync::mpsc;

const ROLE: &str = "REDIS_SEMAPHORE_CHILD_ROLE";
const SAID: &str = "child says ";
const DEADLINE: Duration = Duration::from_secs(240);

pub struct Process {
    child: Child,
    lines: mpsc::UnboundedReceiver<String>,
}

impl Process {
    /// Starts a process. `test` does nothing without a [`role`].
    pub fn start(test: &str, role: &str) -> Self {
        Self::start_with(test, role, &[])
    }

    pub fn start_with(test: &str, role: &str, environment: &[(&str, &OsStr)]) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(ROLE, role)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = mpsc::unbounded_channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some(said) = line.strip_prefix(SAID) {
                    // The test may have ended already.
                    let _ = sender.send(said.to_owned());
                }
            }
        });
        Self { child, lines }
    }

    /// Returns the next line that the process prints, or `None` if the process has ended.
    pub async fn next(&mut self) -> Option<String> {
        let line = tokio::time::timeout(DEADLINE, self.lines.recv()).await;
        line.expect("it prints a line in time, or ends")
    }

    /// Returns a line that the process has printed already.
    pub fn said(&mut self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    /// Writes a line to the input of the process.
    pub fn report(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Closes the input of the process.
    pub fn let_go(&mut self) {
        self.child.stdin = None;
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the role of this process, if it is a child.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Prints a line for the test that started this process.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{SAID}{line}").unwrap();
    out.flush().unwrap();
}

/// Returns this process's current memory ("VmRSS") or its peak ("VmHWM"), in kB.
pub fn memory(kind: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix(kind)?.strip_prefix(':'));
    size.unwrap().trim().trim_end_matches(" kB").parse().unwrap()
}
