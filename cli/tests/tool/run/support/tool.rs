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
    let mut command = unaware("env");
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
    process: Process,
    /// Of the command's output.
    lines: Receiver<String>,
    /// The text that the tool has written to its error output so far.
    told: Arc<Mutex<String>>,
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
        let told = Arc::<Mutex<String>>::default();
        let copy = told.clone();
        let errors = Some(thread::spawn(move || {
            for line in stderr.lines() {
                *copy.lock().unwrap() += &(line.unwrap() + "\n");
            }
        }));
        Self { process, lines, told, errors }
    }

    pub fn id(&self) -> i32 {
        self.process.0.id() as i32
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
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
        eventually("the end of the tool", || self.process.0.try_wait().unwrap())
    }

    /// Sends it this signal until it has ended: it may hear of one too early for what is tested.
    pub fn ended_by(&mut self, signal: Signal) -> ExitStatus {
        eventually("the end of the tool", || {
            self.signal(signal);
            self.process.0.try_wait().unwrap()
        })
    }

    /// Waits until the error output of the tool contains this text.
    pub fn tells(&self, text: &str) {
        eventually(text, || self.told.lock().unwrap().contains(text).then_some(()));
    }

    /// Returns the whole error output, once the tool has closed it.
    pub fn errors(&mut self) -> String {
        self.errors.take().unwrap().join().unwrap();
        self.told.lock().unwrap().clone()
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

/// Whether its group is in the foreground of its terminal.
pub fn has_terminal(process: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map(|(_, fields)| fields.split(' ').collect::<Vec<_>>());
    // State, parent, group, session, terminal, and the group in the foreground of that.
    fields.is_some_and(|fields| fields[2] == fields[5])
}

/// The processes of which this one is the parent.
pub fn children(process: i32) -> Vec<i32> {
    let path = format!("/proc/{process}/task/{process}/children");
    let children = fs::read_to_string(path).unwrap_or_default();
    children.split_whitespace().map(|child| child.parse().unwrap()).collect()
}
