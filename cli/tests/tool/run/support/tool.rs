//! `redis-semaphore run` as a process.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::tool::TOOL;
use crate::support::{DEADLINE, eventually};

/// For `env`: whoever runs tests in the background may have them ignored.
pub const DEFAULT_SIGNALS: &str = "--default-signal=HUP,INT,QUIT";

/// `redis-semaphore run` with these arguments.
pub fn run(url: &str, arguments: &[&str]) -> Command {
    let mut command = without_terminal(url);
    command.args([TOOL, "run"]).args(arguments);
    command
}

/// A script for a shell, in which `$TOOL` is the tool.
pub fn script(url: &str, text: &str) -> Command {
    let mut command = without_terminal(url);
    command.args(["sh", "-c", text]);
    command
}

/// Runs what follows in the same process. The tool would take the terminal of whoever runs the
/// tests.
fn without_terminal(url: &str) -> Command {
    let mut command = Command::new("env");
    command.args([DEFAULT_SIGNALS, "setsid"]);
    command.env("REDIS_URL", url).env("TOOL", TOOL).stdin(Stdio::null());
    command
}

/// The status and the error output of a tool that ends by itself.
pub fn outcome(command: &mut Command) -> (i32, String) {
    let Output { status, stderr, .. } = command.output().unwrap();
    (status.code().expect("it was not killed"), String::from_utf8(stderr).unwrap())
}

/// One that runs beside the test.
pub struct Tool {
    child: Child,
    /// Of the command's output.
    lines: Receiver<String>,
    errors: Option<thread::JoinHandle<String>>,
}

impl Tool {
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let mut stderr = child.stderr.take().unwrap();
        let errors = Some(thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).unwrap();
            text
        }));
        Self { child, lines, errors }
    }

    pub fn id(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.id()), signal).unwrap();
    }

    /// The next line of the command's output.
    pub fn line(&self) -> String {
        self.lines.recv_timeout(DEADLINE).expect("a line")
    }

    /// Waits until nobody writes to the command's output any more.
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
        eventually("the end of the tool", || self.child.try_wait().unwrap())
    }

    /// Once it has ended.
    pub fn errors(&mut self) -> String {
        self.errors.take().unwrap().join().unwrap()
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a process is there, and not only its entry.
pub fn is_alive(process: i32) -> bool {
    state(process).is_some_and(|state| !"ZX".contains(state))
}

/// As `ps` shows it.
pub fn state(process: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// The processes of which this one is the parent.
pub fn children(process: i32) -> Vec<i32> {
    let path = format!("/proc/{process}/task/{process}/children");
    let children = fs::read_to_string(path).unwrap_or_default();
    children.split_whitespace().map(|child| child.parse().unwrap()).collect()
}
