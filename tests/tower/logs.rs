//! Tests of the log lines about shed requests.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use nix::sys::signal::Signal;
use redis_semaphore::{SemaphoreBuilder, SemaphoreClient};
use tracing_subscriber::util::SubscriberInitExt;

use crate::{Service, is_shed, sheds, waits};
use test_support::observer::eventually;
use test_support::server::Server;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the logged lines about shed requests.
fn shed_lines(log: &Log) -> Vec<String> {
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    text.lines().filter(|line| line.contains("a request is shed")).map(str::to_owned).collect()
}

fn logged_to(log: &Log) -> impl Sized {
    let log = log.clone();
    tracing_subscriber::fmt()
        .with_writer(move || log.clone())
        .with_ansi(false)
        .finish()
        .set_default()
}

/// The log line appears even if requests time out earlier than the outage tolerance.
#[tokio::test]
async fn an_outage_is_logged_once() {
    let log = Log::default();
    let _logged = logged_to(&log);
    let redis = Server::start();
    let impatient = |builder: SemaphoreBuilder| builder.acquire_timeout(Duration::from_millis(200));
    let service = Service::start(&redis.url(), impatient, waits).await;
    drop(redis);
    let logged = async || {
        assert!(is_shed(&service.get().await));
        shed_lines(&log).len()
    };
    eventually("a line", logged, |lines| *lines > 0).await;
    for _ in 0..5 {
        assert!(is_shed(&service.get().await));
    }
    let lines = shed_lines(&log);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("nothing listens there"), "{lines:?}");
}

/// The calls of these requests are too short to prove an outage.
#[tokio::test]
async fn requests_that_fail_together_are_logged_once() {
    let log = Log::default();
    let _logged = logged_to(&log);
    let redis = Server::start();
    let patient = SemaphoreClient::builder().response_timeout(Duration::from_secs(600));
    let semaphores = patient.connect(&redis.url()).await.unwrap();
    let impatient = |builder: SemaphoreBuilder| builder.acquire_timeout(Duration::from_millis(100));
    let service = Service::of(semaphores, impatient, sheds).await;
    redis.signal(Signal::SIGSTOP);
    let responses = join_all((0..20).map(|_| service.get())).await;
    assert!(responses.iter().all(is_shed));
    let lines = shed_lines(&log);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("try_acquire failed for"), "{lines:?}");
}

/// One line a minute for all errors would hide the second error.
#[tokio::test]
async fn each_kind_of_error_is_logged() {
    let log = Log::default();
    let _logged = logged_to(&log);
    let redis = Server::start();
    let semaphores = SemaphoreClient::connect(&redis.admin_url()).await.unwrap();
    let acknowledged =
        |builder: SemaphoreBuilder| builder.acknowledged_by(1, Duration::from_millis(50));
    let service = Service::of(semaphores, acknowledged, waits).await;
    assert!(is_shed(&service.get().await));
    let mut admin = redis.connect();
    let keys: Vec<String> = redis::cmd("KEYS").arg("sem:*:state").query(&mut admin).unwrap();
    let permits = keys[0].replace(":state", ":permits");
    redis::cmd("SET").arg(permits).arg(1).exec(&mut admin).unwrap();
    for _ in 0..2 {
        assert!(is_shed(&service.get().await));
    }
    let lines = shed_lines(&log);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("0 of 1 replicas") && lines[1].contains("SEM_TYPE"), "{lines:?}");
}
