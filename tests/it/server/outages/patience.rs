//! Tests of calls that contain requests of many callers. Each request has its own call timeout.

use std::time::Duration;

use futures_util::future::join_all;
use nix::sys::signal::Signal;
use redis_semaphore::{Error, Semaphore, SemaphoreClient};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use test_support::observer::{eventually, in_time};
use test_support::proxy::{Flow, Proxy};
use test_support::server::Server;

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);
/// The documented call timeout of `try_acquire` and of releases.
const PATIENCE: Duration = Duration::from_secs(6);
/// The longest time until a caller gets its result. The shared call may end later, because it takes
/// one more response timeout, but the caller does not wait for its end.
const LATEST: Duration = Duration::from_millis(8_900);

/// Later requests arrive while earlier requests are retried. The next call contains the earlier and
/// the later requests.
#[tokio::test]
async fn a_request_does_not_wait_for_the_call_timeout_of_later_requests() {
    let server = Server::start();
    let builder = SemaphoreClient::builder().response_timeout(RESPONSE_TIMEOUT);
    let client = builder.connect(&server.url()).await.unwrap();
    let semaphore = client.semaphore("patience").limit(100).build().unwrap();
    let permits = join_all((0..30).map(|_| semaphore.acquire())).await;
    server.signal(Signal::SIGSTOP);
    let calls = permits.into_iter().enumerate().map(|(number, permit)| {
        let semaphore = semaphore.clone();
        async move {
            // Requests arrive throughout the first and the second attempt.
            sleep(PATIENCE / 30 * number as u32).await;
            let released = timeout(LATEST, permit.unwrap().release());
            let tried = timeout(LATEST, semaphore.try_acquire());
            let (released, tried) = tokio::join!(released, tried);
            for error in [released.expect("in time").err(), tried.expect("in time").err()] {
                let Some(Error::Unavailable { elapsed, .. }) = error else { panic!("{error:?}") };
                assert!(elapsed >= PATIENCE / 2, "retries ended after {elapsed:?}");
            }
        }
    });
    join_all(calls).await;
    server.signal(Signal::SIGCONT);
}

/// A heartbeat may have a shorter call timeout than other requests. A reply after this timeout
/// still counts. The test uses many waits, because the moment of each call is random.
#[tokio::test]
async fn a_wait_gets_its_permit_although_the_reply_is_late() {
    const SEMAPHORES: usize = 100;
    let timeout = Duration::from_secs(1);
    let server = Server::start();
    let proxy = Proxy::start(server.port).await;
    let hour = Duration::from_secs(3600);
    let builder = SemaphoreClient::builder().response_timeout(timeout).outage_tolerance(hour);
    let builder = builder.heartbeat_timeout(Duration::from_millis(900));
    let client = builder.connect(&proxy.url()).await.unwrap();
    let holding = SemaphoreClient::connect(&server.url()).await.unwrap();
    let (mut holders, mut ours, mut turns) = (Vec::new(), Vec::new(), JoinSet::new());
    for number in 0..SEMAPHORES {
        let build = |client: &SemaphoreClient| {
            client.semaphore(format!("late-{number}")).limit(1).lease(hour).build().unwrap()
        };
        let (theirs, semaphore) = (build(&holding), build(&client));
        holders.push(theirs.acquire().await.unwrap());
        turns.spawn(turn(semaphore.clone()));
        let queued = async || theirs.inspect().await.unwrap().queued;
        eventually("it waits", queued, |queued| *queued == 1).await;
        ours.push(semaphore);
    }
    // The grant messages are lost.
    proxy.messages(Flow::Swallow);
    proxy.replies(Flow::Hold);
    for holder in holders {
        holder.release().await.unwrap();
    }
    ours.into_iter().for_each(|semaphore| _ = turns.spawn(turn(semaphore)));
    // Calls fail. The failed calls are sent again at different moments, and some calls are sent
    // again together.
    let again = proxy.passed_requests() + SEMAPHORES / 7;
    let passed = async || proxy.passed_requests();
    eventually("calls that are sent again", passed, |passed| *passed >= again).await;
    proxy.messages(Flow::Pass);
    proxy.replies(Flow::Pass);
    in_time("all turns", turns.join_all()).await;
}

async fn turn(semaphore: Semaphore) {
    semaphore.acquire().await.unwrap().release().await.unwrap();
}
