//! Holds a permit for some time, without work.

use std::thread;
use std::time::{Duration, Instant};

/// Tokio's timers count whole milliseconds, and fire up to 2 ms late.
const COARSE: Duration = Duration::from_millis(2);

/// Waits for the given time. On an idle machine, the wait is about 0.1 ms longer than the given
/// time. The results contain the actual time.
///
/// Tokio waits for all but the last 2 ms. A thread sleeps for the rest, because the system wakes it
/// within about 50 µs. Polling the clock would be more exact, but it would take CPU time from the
/// measured processes, including the server.
pub async fn hold(time: Duration) {
    let end = Instant::now() + time;
    if time > COARSE {
        tokio::time::sleep(time - COARSE).await;
    }
    let rest = move || thread::sleep(end.saturating_duration_since(Instant::now()));
    tokio::task::spawn_blocking(rest).await.expect("sleeping does not panic");
}
