//! The exporter as a process, and its scrapes.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::metrics::Metrics;
use crate::support::process::Process;
use crate::support::server::Server;
use crate::support::tool::tool;
use crate::support::{DEADLINE, eventually_async};

pub struct Exporter {
    pub process: Process,
    pub address: SocketAddr,
    log: Arc<Mutex<Vec<String>>>,
}

pub fn command(url: &str, arguments: &[&str]) -> Command {
    let mut command = tool(&[&["exporter"], arguments].concat());
    command.env("REDIS_URL", url);
    command
}

impl Exporter {
    pub async fn start(url: &str, arguments: &[&str]) -> Self {
        let arguments = [&["--listen", "127.0.0.1:0"], arguments].concat();
        Self::try_start(&mut command(url, &arguments)).await.expect("it listens")
    }

    /// Starts the exporter, or returns `None` if it ends immediately.
    pub async fn try_start(command: &mut Command) -> Option<Self> {
        let mut process = Process::start(command.stderr(Stdio::piped()));
        let output = BufReader::new(process.0.stderr.take().unwrap());
        let log = Arc::<Mutex<Vec<String>>>::default();
        let copy = log.clone();
        let reader = thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                copy.lock().unwrap().push(line);
            }
        });
        let address = eventually_async("its address", async || {
            let is_over = reader.is_finished();
            let log = log.lock().unwrap();
            let reported = log.iter().find_map(|line| line.split_once("listening on http://"));
            let address = reported.map(|(_, url)| url.strip_suffix("/metrics").unwrap());
            let address = address.map(|address| address.parse().unwrap());
            (is_over || address.is_some()).then_some(address)
        });
        let address = address.await?;
        Some(Self { process, address, log })
    }

    pub async fn scrape(&self) -> Metrics {
        Metrics::read(&get(self.address, "/metrics", "").await.body)
    }

    /// Scrapes until the metric `up` has this value.
    pub async fn await_up(&self, up: f64) -> Metrics {
        let look = async || Some(self.scrape().await).filter(|seen| seen.one("up") == up);
        eventually_async("another value of up", look).await
    }

    /// Scrapes until the last line of the log contains this text.
    pub async fn scrape_until_logged(&self, text: &str) {
        eventually_async(text, async || {
            self.scrape().await;
            self.reported().last()?.contains(text).then_some(())
        })
        .await;
    }

    /// Waits until this failure and its end were logged. Fails if a line is logged twice in a row.
    /// On a busy machine, other failures may be logged, too.
    pub async fn logs_outage(&self, reason: &str) {
        eventually_async(reason, async || {
            let reported = self.reported();
            let is_end = |line: &String| line.ends_with("the semaphores can be read again");
            assert!(reported.first().is_none_or(|first| !is_end(first)), "{reported:?}");
            assert!(reported.windows(2).all(|two| two[0] != two[1]), "{reported:?}");
            let at = reported.iter().position(|line| line.contains(reason))?;
            reported[at..].iter().any(is_end).then_some(())
        })
        .await;
    }

    pub fn logs_nothing(&self) {
        assert_eq!(self.reported(), [""; 0]);
    }

    pub fn reported(&self) -> Vec<String> {
        let log = self.log.lock().unwrap();
        log.iter().filter(|line| !line.contains("listening on")).cloned().collect()
    }
}

pub async fn use_all(server: &Server, names: impl IntoIterator<Item = impl Into<String>>) {
    let client = server.semaphores().await;
    for name in names {
        let semaphore = client.semaphore(name).limit(1).build().unwrap();
        semaphore.acquire().await.unwrap().release().await.unwrap();
    }
}

pub struct Response {
    pub head: String,
    pub body: String,
}

/// Sends an HTTP request. Each header in `headers` ends with a line break.
pub async fn get(address: SocketAddr, path: &str, headers: &str) -> Response {
    let asked = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        Response { head: head.to_lowercase(), body: body.to_owned() }
    };
    timeout(DEADLINE, asked).await.expect("a reply")
}
