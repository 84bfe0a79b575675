//! Runs the program `reports` and the example `axum` as processes.

use std::process::{ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use test_support::example;
use test_support::observer::in_time;
use test_support::server::{connect, shared_admin_url};

/// The program `reports`, which runs until this value is dropped.
pub struct Reports {
    pub url: String,
    _input: ChildStdin,
    _process: Child,
}

impl Reports {
    pub async fn start(name: &str, limit: &str) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_reports"))
            .args([name, limit])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = in_time("its address", lines.next_line()).await;
        let url = format!("http://{}/report", address.unwrap().expect("an address"));
        Self { url, _input: process.stdin.take().unwrap(), _process: process }
    }
}

/// The example `axum`, which runs until this value is dropped.
pub struct Example {
    pub url: String,
    process: Child,
}

impl Example {
    pub async fn start(redis: &str) -> Self {
        let mut process = Command::new(example::program("axum"))
            .env("REDIS_URL", redis)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = in_time("its address", lines.next_line()).await.unwrap().expect("a line");
        let url = line.strip_prefix("curl ").expect("a command").to_owned();
        Self { url, process }
    }

    pub fn signal(&self, signal: Signal) {
        let id = self.process.id().expect("it runs");
        kill(Pid::from_raw(id as i32), signal).unwrap();
    }

    /// Waits until the process has ended, and returns its status.
    pub async fn ended(mut self) -> ExitStatus {
        in_time("its end", self.process.wait()).await.unwrap()
    }
}

/// Returns the largest number of concurrent requests of `reports`.
pub fn most_inside(name: &str) -> u32 {
    let mut get = redis::cmd("HMGET");
    get.arg(format!("count:{name}")).arg(&["inside", "most"]);
    let (inside, most): (u32, u32) = get.query(&mut connect(&shared_admin_url())).unwrap();
    assert_eq!(inside, 0, "all have left");
    most
}
