//! Leases, deadlines and patience go by tokio's clock, as its timers do; only connections, which
//! wait for others, go by the system's. The two differ where a test has paused tokio's.
//!
//! Its timers then end at once, while sockets need real time: every call times out, and there is no
//! pause between two attempts.

use std::thread;
use std::time::{Duration, Instant};

use redis::{ErrorKind, RedisError};
use tokio::sync::oneshot;

/// Of real time.
const REST: Duration = Duration::from_millis(250);

pub(crate) const PAUSED: &str = "tokio's clock is paused";

/// Of the runtime in which this is called. It costs two looks at the clock.
pub(crate) fn is_paused() -> bool {
    let before = tokio::time::Instant::now();
    let started = Instant::now();
    while Instant::now() <= started {}
    tokio::time::Instant::now() == before
}

/// What has failed, or that the clock is paused, for which everything fails.
pub(crate) fn or_paused(error: RedisError) -> RedisError {
    match is_paused() {
        true => (ErrorKind::Io, PAUSED).into(),
        false => error,
    }
}

/// Keeps what is repeated in the background from being repeated without any pause.
pub(crate) async fn rest_if_paused() {
    if !is_paused() {
        return;
    }
    let (sender, over) = oneshot::channel();
    // Tokio's own threads for what blocks would stop the clock meanwhile.
    thread::spawn(move || {
        thread::sleep(REST);
        // Whoever waited may have ended.
        let _ = sender.send(());
    });
    let _ = over.await;
}
