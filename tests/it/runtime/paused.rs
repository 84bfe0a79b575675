//! Test of connecting while Tokio's clock is paused.

use redis_semaphore::{Error, SemaphoreClient};
use tokio::runtime::{Builder, Runtime};

use test_support::server::shared_url;

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
