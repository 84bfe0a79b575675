//! The CLI, and its output.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

pub const TOOL: &str = env!("CARGO_BIN_EXE_redis-semaphore");

pub fn tool(arguments: &[&str]) -> Command {
    let mut command = unaware(TOOL);
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Returns a command that starts `program` without environment variables that select a server or
/// enable a log.
pub fn unaware(program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("REDIS_") {
            command.env_remove(name);
        }
    }
    command.env_remove("RUST_LOG");
    command
}

/// The output of the CLI, and its exit status.
#[derive(Debug)]
pub struct Outcome {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    pub fn of(mut command: Command) -> Self {
        let Output { status, stdout, stderr } = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { status: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub fn fails(&self, status: i32, reason: &str) {
        assert_eq!((self.status, &*self.stdout), (Some(status), ""), "{self:?}");
        assert!(self.stderr.contains(reason), "{reason:?} is not in {self:?}");
    }
}
