//! Calls carry requests of many, each with its own patience.

use std::time::Duration;

use futures_util::future::join_all;
use nix::sys::signal::Signal;
use redis_semaphore::{Error, Semaphores};
use tokio::time::{sleep, timeout};

use crate::support::server::Server;

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
/// As documented of a try and of a release.
const PATIENCE: Duration = Duration::from_secs(2);
/// Less than a response timeout: nobody waits for the end of a call that goes on for others.
const LATEST: Duration = Duration::from_millis(2_500);

/// They come while others are tried again, and go out with those.
#[tokio::test]
async fn nobody_waits_for_the_patience_of_who_came_later() {
    let server = Server::start();
    let builder = Semaphores::builder().response_timeout(RESPONSE_TIMEOUT);
    let semaphores = builder.connect(&server.url()).await.unwrap();
    let semaphore = semaphores.semaphore("patience").limit(100).build().unwrap();
    let permits = join_all((0..30).map(|_| semaphore.acquire())).await;
    server.signal(Signal::SIGSTOP);
    let calls = permits.into_iter().enumerate().map(|(number, permit)| {
        let semaphore = semaphore.clone();
        async move {
            // Throughout the first attempt and the second.
            sleep(PATIENCE / 30 * number as u32).await;
            let released = timeout(LATEST, permit.unwrap().release());
            let tried = timeout(LATEST, semaphore.try_acquire());
            let (released, tried) = tokio::join!(released, tried);
            for error in [released.expect("in time").err(), tried.expect("in time").err()] {
                let Some(Error::Unavailable { elapsed, .. }) = error else { panic!("{error:?}") };
                assert!(elapsed >= PATIENCE / 2, "given up after {elapsed:?}");
            }
        }
    });
    join_all(calls).await;
    server.signal(Signal::SIGCONT);
}
