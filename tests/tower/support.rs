//! Servers, services and waiting.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{sleep, timeout};

/// No machine is that busy.
const DEADLINE: Duration = Duration::from_secs(60);

pub fn shared_url() -> String {
    std::env::var("REDIS_URL").expect("scripts/with-redis sets it")
}

pub fn unique_name() -> String {
    format!("tower-{}", uuid::Uuid::new_v4())
}

pub async fn eventually<T: std::fmt::Debug>(
    what: &str,
    look: impl AsyncFn() -> T,
    is_so: impl Fn(&T) -> bool,
) {
    let mut last = look().await;
    let done = timeout(DEADLINE, async {
        while !is_so(&last) {
            sleep(Duration::from_millis(5)).await;
            last = look().await;
        }
    });
    let done = done.await;
    assert!(done.is_ok(), "{what}: {last:?}");
}

/// The most requests of `reports` that were inside at once.
pub async fn most_inside(name: &str) -> u32 {
    let client = redis::Client::open(shared_url()).unwrap();
    let mut redis = client.get_multiplexed_async_connection().await.unwrap();
    let key = format!("count:{name}");
    let (inside, most): (u32, u32) = redis::cmd("HMGET")
        .arg(key)
        .arg("inside")
        .arg("most")
        .query_async(&mut redis)
        .await
        .unwrap();
    assert_eq!(inside, 0, "all have left");
    most
}

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
        let address = timeout(DEADLINE, lines.next_line()).await.expect("it starts in time");
        let url = format!("http://{}/report", address.unwrap().expect("an address"));
        Self { url, _input: process.stdin.take().unwrap(), _process: process }
    }
}

/// A server of one's own, until it is dropped.
pub struct Redis {
    pub url: String,
    _process: Child,
}

impl Redis {
    pub async fn start() -> Self {
        let program = std::env::var("REDIS_SERVER_BIN").expect("scripts/with-redis sets it");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        drop(listener);
        let process = Command::new(program)
            .args(["--port", &port, "--bind", "127.0.0.1", "--save", ""])
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let url = format!("redis://127.0.0.1:{port}/");
        let client = redis::Client::open(url.as_str()).unwrap();
        let answers = async || client.get_multiplexed_async_connection().await.is_ok();
        eventually("the server", answers, |answers| *answers).await;
        Self { url, _process: process }
    }

    pub async fn forget_all_permits(&self) {
        let client = redis::Client::open(self.url.as_str()).unwrap();
        let mut redis = client.get_multiplexed_async_connection().await.unwrap();
        let () = redis::cmd("FLUSHDB").query_async(&mut redis).await.unwrap();
    }
}
