//! Tests of a runtime that exists for a limited time inside a task of another runtime.

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use redis_semaphore::SemaphoreClient;
use tokio::task::block_in_place;

use super::one_thread;
use test_support::observer::in_time;
use test_support::server::{shared_url, unique_name};

/// A future that was polled in the inner runtime continues in the outer runtime, whether the inner
/// runtime is idle or has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_future_polled_in_an_inner_runtime_continues_in_the_outer_runtime() {
    let on_home = tokio::spawn(async {
        let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
        let lease = Duration::from_secs(4);
        let builder = client.semaphore(unique_name()).limit(1).lease(lease).auto_refresh(false);
        let semaphore = builder.build().unwrap();
        for ends in [false, true] {
            let permit = semaphore.acquire().await.unwrap();
            let mut lost = pin!(permit.lost());
            let mut wait = pin!(semaphore.acquire_timeout(lease / 4));
            let inside = one_thread();
            block_in_place(|| {
                inside.block_on(async {
                    assert!(lost.as_mut().now_or_never().is_none());
                    assert!(wait.as_mut().now_or_never().is_none());
                });
            });
            let resting = match ends {
                true => {
                    inside.shutdown_background();
                    None
                }
                false => Some(inside),
            };
            assert!(in_time("the timeout", wait).await.is_err());
            in_time("the end of the lease", lost).await;
            if let Some(resting) = resting {
                resting.shutdown_background();
            }
        }
    });
    on_home.await.unwrap();
}
