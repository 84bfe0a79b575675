//! Tests in which Tokio's clock is paused. Calls that cannot succeed return an error, and nothing
//! loops forever.

use std::time::Duration;

use redis_semaphore::{Error, SemaphoreClient};
use tokio::runtime::{Builder, Runtime};

use test_support::cluster::Cluster;
use test_support::observer::eventually;
use test_support::proxy::{Flow, Proxy};
use test_support::server::{Server, shared_url, unique_name};

fn paused() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

#[test]
fn connecting_says_that_the_clock_is_paused() {
    let (url, builder) = (shared_url(), SemaphoreClient::builder);
    for refused in [
        paused().block_on(SemaphoreClient::connect(&url)),
        paused().block_on(builder().connect_primary_of([&*url])),
        paused().block_on(builder().connect_cluster([&*url])),
    ] {
        match refused {
            Err(Error::Invalid { what: "runtime", reason, .. }) => {
                assert!(reason.contains("tokio's clock is paused"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
}

fn says_so<T: std::fmt::Debug>(answer: Result<T, Error>) {
    let failed = answer.unwrap_err();
    assert!(matches!(failed, Error::Unavailable { .. }), "{failed}");
    assert!(failed.to_string().contains("tokio's clock is paused"), "{failed}");
}

/// A real time in which thousands of attempts would be possible.
const WHILE: Duration = Duration::from_secs(2);

/// Waits in a runtime whose clock runs.
async fn some_time_passes() {
    tokio::time::sleep(WHILE).await;
}

#[test]
fn calls_fail_without_busy_loops_after_tokios_clock_is_paused() {
    let faults = Runtime::new().unwrap();
    let server = Server::start();
    let proxy = faults.block_on(Proxy::start(server.port));
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = SemaphoreClient::connect(&proxy.url()).await.unwrap();
        let semaphore = client.semaphore(unique_name()).limit(2).build().unwrap();
        let held = semaphore.acquire().await.unwrap();
        let waits = tokio::spawn({
            let semaphore = semaphore.clone();
            async move { semaphore.acquire_many(2).await }
        });
        let queued = async || semaphore.inspect().await.unwrap().queued;
        eventually("it is queued", queued, |queued| *queued == 1).await;

        tokio::time::pause();
        // The paused time passes faster than any reply arrives.
        proxy.replies(Flow::Hold);
        says_so(semaphore.try_acquire().await);
        says_so(semaphore.acquire().await);
        says_so(semaphore.acquire_timeout(WHILE).await);
        says_so(semaphore.inspect().await);
        says_so(semaphore.set_limit(3).await);
        says_so(held.refresh().await);
        let before = (proxy.accepted(), proxy.passed_requests());
        faults.spawn(some_time_passes()).await.unwrap();
        proxy.replies(Flow::Pass);
        faults.spawn(some_time_passes()).await.unwrap();
        let connections = proxy.accepted() - before.0;
        let requests = proxy.passed_requests() - before.1;
        assert!(connections < 100 && requests < 1000, "{connections} with {requests} requests");

        tokio::time::resume();
        waits.abort();
        let works = async || semaphore.inspect().await.is_ok();
        eventually("it works again", works, |works| *works).await;
    });
}

#[test]
fn a_cluster_client_has_no_busy_loop_while_tokios_clock_is_paused() {
    let Some(cluster) = Runtime::new().unwrap().block_on(Cluster::start(1, false)) else { return };
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let faults = Runtime::new().unwrap();
    let calls = || -> u64 {
        let info: redis::InfoDict =
            redis::cmd("INFO").arg("stats").query(&mut cluster.connect(0)).unwrap();
        info.get("total_commands_processed").unwrap()
    };
    runtime.block_on(async {
        let client = SemaphoreClient::builder().connect_cluster(cluster.urls()).await.unwrap();
        let semaphore = client.semaphore(unique_name()).limit(1).build().unwrap();
        let _held = semaphore.acquire().await.unwrap();
        tokio::time::pause();
        let before = calls();
        faults.spawn(some_time_passes()).await.unwrap();
        let calls = calls() - before;
        assert!(calls < 1000, "{calls} calls");
    });
}
