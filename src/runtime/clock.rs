//! Leases, deadlines, timeouts and timers use Tokio's clock. Only connections use the system's
//! clock. The two clocks differ if a test has paused Tokio's clock.
//!
//! While Tokio's clock is paused, its timers end immediately, but sockets need real time. So every
//! call times out, without a pause between two attempts.

use std::thread;
use std::time::{Duration, Instant};

use redis::{ErrorKind, RedisError};
use tokio::sync::oneshot;

/// The length of a pause in real time.
const REST: Duration = Duration::from_millis(250);

pub(crate) const PAUSED: &str = "tokio's clock is paused";

/// Whether the current runtime's clock is paused. Two readings of a paused clock are equal.
pub(crate) fn is_paused() -> bool {
    let before = tokio::time::Instant::now();
    let started = Instant::now();
    while Instant::now() <= started {}
    tokio::time::Instant::now() == before
}

/// Returns the error, or "the clock is paused" if that is the reason.
pub(crate) fn or_paused(error: RedisError) -> RedisError {
    match is_paused() {
        true => (ErrorKind::Io, PAUSED).into(),
        false => error,
    }
}

/// Pauses background retries while the clock is paused, because they would repeat without a pause.
pub(crate) async fn rest_if_paused() {
    if !is_paused() {
        return;
    }
    let (sender, over) = oneshot::channel();
    // A blocking task of Tokio would keep the paused clock from advancing during that time.
    thread::spawn(move || {
        thread::sleep(REST);
        // The waiting task may have ended.
        let _ = sender.send(());
    });
    let _ = over.await;
}
