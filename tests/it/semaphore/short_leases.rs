//! Tests that `acquire` never returns a permit that is already lost, however busy the caller's
//! thread is.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use redis_semaphore::{Error, Permit, SemaphoreClient};

use test_support::observer::{Observer, eventually, in_time};
use test_support::proxy::{Flow, Proxy};
use test_support::server::{Server, shared_url, unique_name};

/// Returns the result of the acquire and the rest of the lease, read in the poll that returns the
/// permit.
async fn outcome(acquire: impl Future<Output = Result<Permit, Error>>) -> Result<Duration, Error> {
    let mut acquire = pin!(acquire);
    poll_fn(|cx| match acquire.as_mut().poll(cx) {
        Poll::Ready(outcome) => Poll::Ready(outcome.map(|permit| permit.expires_in())),
        Poll::Pending => Poll::Pending,
    })
    .await
}

/// Blocks the thread once for each of `milliseconds`, and yields to other tasks after each of these
/// times.
async fn keep_busy(milliseconds: impl Iterator<Item = u64>) {
    for busy in milliseconds {
        std::thread::sleep(Duration::from_millis(busy));
        tokio::task::yield_now().await;
    }
}

async fn acquire_on_a_busy_thread(
    lease: u64,
    busy: impl Iterator<Item = u64>,
) -> Vec<Result<Duration, Error>> {
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let semaphore = client.semaphore(unique_name()).limit(100);
    let semaphore = semaphore.lease(Duration::from_millis(lease)).build().unwrap();
    let mut outcomes = Vec::new();
    let acquires = async {
        for _ in 0..20 {
            outcomes.push(outcome(semaphore.acquire()).await);
        }
    };
    tokio::select! {
        () = in_time("all outcomes", acquires) => {}
        () = keep_busy(busy) => {}
    }
    outcomes
}

#[tokio::test]
async fn on_a_busy_thread_a_permit_is_held_when_it_is_returned() {
    // Some replies are read in time, some so late that the lease is refreshed first, and some too
    // late.
    let busy = [20, 35, 5, 0].into_iter().cycle();
    let outcomes = acquire_on_a_busy_thread(30, busy).await;
    assert_eq!(outcomes.len(), 20);
    for outcome in outcomes {
        match outcome {
            Ok(left) => assert!(left > Duration::ZERO),
            Err(error) => assert!(matches!(error, Error::LeaseTooShort { .. }), "{error:?}"),
        }
    }
}

#[tokio::test]
async fn an_acquire_fails_if_the_lease_is_shorter_than_the_reply_time() {
    let outcomes = acquire_on_a_busy_thread(10, std::iter::repeat(15)).await;
    assert_eq!(outcomes.len(), 20);
    for outcome in outcomes {
        let error = outcome.unwrap_err();
        assert!(matches!(error, Error::LeaseTooShort { .. }), "{error:?}");
        assert!(error.to_string().contains("granted lease (10 ms)"), "{error}");
    }
}

/// A permit whose reply is late is refreshed before it is returned. The error must name the
/// caller's call, not `refresh`.
#[tokio::test]
async fn a_refresh_that_fails_within_an_acquire_is_reported_as_the_acquire() {
    let server = Server::start();
    let patience = Duration::from_secs(1);
    let builder = SemaphoreClient::builder().response_timeout(patience).outage_tolerance(patience);
    // A busy machine may need longer than the response timeout.
    let builder = builder.connect_timeout(Duration::from_secs(60));
    for called in ["acquire", "try_acquire"] {
        let proxy = Proxy::start(server.port).await;
        let observer = Observer::new(&server.url(), called, 1).await;
        let client = builder.clone().connect(&proxy.url()).await.unwrap();
        let semaphore = client.semaphore(called).limit(1).lease(Duration::from_millis(100));
        let semaphore = semaphore.build().unwrap();
        semaphore.acquire().await.unwrap().release().await.unwrap();
        let before = observer.look().await.last_token;
        proxy.replies(Flow::Hold);
        let asking = tokio::spawn(async move {
            match called {
                "acquire" => semaphore.acquire().await.map(drop),
                _ => semaphore.try_acquire().await.map(drop),
            }
        });
        // The lease is so short that an observer may not see the permit.
        let granted = async || observer.look().await.last_token;
        eventually("it is granted", granted, |token| *token > before).await;
        observer.sees(0, 0).await;
        proxy.commands(Flow::Hold);
        proxy.replies(Flow::Pass);
        let failed = in_time("a reply", asking).await.unwrap().unwrap_err();
        let Error::Unavailable { operation, .. } = failed else { panic!("{failed:?}") };
        assert_eq!(operation, called);
    }
}
