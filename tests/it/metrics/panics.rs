//! Tests a metrics recorder that panics.

use std::sync::Arc;
use std::time::Duration;

use metrics::{
    Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use redis_semaphore::{Error, Semaphore, SemaphoreClient};

use test_support::observer::{eventually, in_time};
use test_support::server::Server;

struct Broken;

impl CounterFn for Broken {
    fn increment(&self, _value: u64) {
        panic!("as was planned");
    }

    fn absolute(&self, _value: u64) {}
}

impl Recorder for Broken {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match key.name() {
            "redis_semaphore_client_refresh_failures_total" => Counter::from_arc(Arc::new(Self)),
            _ => Counter::noop(),
        }
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// The semaphore whose recorder panics is shut down. Other semaphores on its connection continue.
#[tokio::test]
async fn a_panic_of_the_metrics_recorder_shuts_down_only_its_semaphore() {
    let server = Server::start();
    let client = SemaphoreClient::connect(&server.url()).await.unwrap();
    let build = |name: &str, lease| -> Semaphore {
        client.semaphore(name).limit(2).lease(Duration::from_secs(lease)).build().unwrap()
    };
    let broken = metrics::with_local_recorder(&Broken, || build("broken", 3));
    let sound = build("sound", 600);
    let permit = broken.acquire().await.unwrap();
    let held = sound.acquire().await.unwrap();
    // A value of the wrong type makes the refresh fail.
    redis::cmd("SET")
        .arg("sem:{broken}:permits")
        .arg("stranger's")
        .exec(&mut server.connect())
        .unwrap();
    in_time("the loss", permit.lost()).await;
    let refused = async || broken.acquire().await.err();
    let is_shut_down = |error: &Option<Error>| matches!(error, Some(Error::Shutdown));
    eventually("the end of the semaphore", refused, is_shut_down).await;
    sound.acquire().await.unwrap().release().await.unwrap();
    held.release().await.unwrap();
}
