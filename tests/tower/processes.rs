//! The program `reports`.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use crate::support::observer::in_time;
use crate::support::server::{connect, shared_admin_url};

/// The program `reports`, until it is dropped.
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

/// The most requests of `reports` that were inside at once.
pub fn most_inside(name: &str) -> u32 {
    let mut get = redis::cmd("HMGET");
    get.arg(format!("count:{name}")).arg(&["inside", "most"]);
    let (inside, most): (u32, u32) = get.query(&mut connect(&shared_admin_url())).unwrap();
    assert_eq!(inside, 0, "all have left");
    most
}
