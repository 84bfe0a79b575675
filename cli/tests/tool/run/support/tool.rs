//! `redis-semaphore run` as a process.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;

use nix::sys::signal::Signal;

use crate::support::process::Process;
use crate::support::tool::{TOOL, unaware};
use crate::support::{DEADLINE, eventually};

/// An option of `env`, because the tests may have been started with these signals ignored.
pub const DEFAULT_SIGNALS: &str = "--default-signal=HUP,INT,QUIT";

pub fn run(url: &str, arguments: &[&str]) -> Command {
    let mut command = without_terminal(url);
    command.args([TOOL, "run"]).args(arguments);
    command
}

/// Returns a command that runs a script in `sh`. In the script, `$TOOL` is the CLI.
pub fn script(url: &str, text: &str) -> Command {
    let mut command = without_terminal(url);
    command.args(["sh", "-c", text]);
    command
}

/// Returns a command that starts a program without a terminal. Otherwise, the CLI would take the
/// terminal of the tests.
fn without_terminal(url: &str) -> Command {
    let mut command = unaware("env");
    command.args([DEFAULT_SIGNALS, "setsid"]);
    command.env("REDIS_URL", url).env("TOOL", TOOL).stdin(Stdio::null());
    command
}

/// Returns the status and the error output of a CLI that ends by itself.
pub fn outcome(command: &mut Command) -> (i32, String) {
    let Output { status, stderr, .. } = command.output().unwrap();
    (status.code().expect("it was not killed"), String::from_utf8(stderr).unwrap())
}

/// A CLI that runs beside the test.
pub struct Tool {
    process: Process,
    lines: Receiver<String>,
    /// The text that the CLI has written to its error output so far.
    reported: Arc<Mutex<String>>,
    errors: Option<thread::JoinHandle<()>>,
}

impl Tool {
    pub fn start(command: &mut Command) -> Self {
        let mut process = Process::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let (sender, lines) = mpsc::channel();
        let output = BufReader::new(process.0.stdout.take().unwrap());
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let stderr = BufReader::new(process.0.stderr.take().unwrap());
        let reported = Arc::<Mutex<String>>::default();
        let copy = reported.clone();
        let errors = Some(thread::spawn(move || {
            for line in stderr.lines() {
                *copy.lock().unwrap() += &(line.unwrap() + "\n");
            }
        }));
        Self { process, lines, reported, errors }
    }

    pub fn id(&self) -> i32 {
        self.process.0.id() as i32
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Returns the next line of the command's output.
    pub fn line(&self) -> String {
        self.lines.recv_timeout(DEADLINE).expect("a line")
    }

    /// Waits until no process can write to the command's output any more.
    pub fn silent(&self) {
        loop {
            match self.lines.recv_timeout(DEADLINE) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => panic!("the output does not end"),
            }
        }
    }

    pub fn ended(&mut self) -> ExitStatus {
        eventually("the end of the tool", || self.process.0.try_wait().unwrap())
    }

    /// Sends this signal until the CLI has ended, because the CLI may not handle the first signals
    /// yet.
    pub fn ended_by(&mut self, signal: Signal) -> ExitStatus {
        eventually("the end of the tool", || {
            self.signal(signal);
            self.process.0.try_wait().unwrap()
        })
    }

    /// Waits until the error output of the CLI contains this text.
    pub fn reports(&self, text: &str) {
        self.reports_times(text, 1);
    }

    /// Waits until the error output of the CLI contains this text this number of times.
    pub fn reports_times(&self, text: &str, times: usize) {
        let reported = || self.reported.lock().unwrap().matches(text).count();
        eventually(text, || (reported() >= times).then_some(()));
    }

    /// Returns the whole error output, after the CLI has closed it.
    pub fn errors(&mut self) -> String {
        self.errors.take().unwrap().join().unwrap();
        self.reported.lock().unwrap().clone()
    }
}

/// Returns whether a process exists and is not a zombie.
pub fn is_alive(process: i32) -> bool {
    state(process).is_some_and(|state| !"ZX".contains(state))
}

/// Returns the state of a process, as `ps` prints it.
pub fn state(process: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Returns whether the group of the process is in the foreground of its terminal.
pub fn has_terminal(process: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map(|(_, fields)| fields.split(' ').collect::<Vec<_>>());
    // The fields are state, parent, group, session, terminal, and the group in the foreground of
    // the terminal.
    fields.is_some_and(|fields| fields[2] == fields[5])
}

pub fn children(process: i32) -> Vec<i32> {
    let path = format!("/proc/{process}/task/{process}/children");
    let children = fs::read_to_string(path).unwrap_or_default();
    children.split_whitespace().map(|child| child.parse().unwrap()).collect()
}
