//! What a holder does with its permit: nothing, for some time.

use std::thread;
use std::time::{Duration, Instant};

/// Tokio's timers count whole milliseconds, and end up to two of them late.
const COARSE: Duration = Duration::from_millis(2);

/// Takes a tenth of a millisecond longer than asked for, on a machine that is not busy. So what
/// counts in the results is the time that it really took.
///
/// A long time is left to tokio, but for its end. That is slept off by a thread, which the system
/// wakes within some fifty microseconds. Looking at the clock in a loop would be more exact still,
/// but take the processor from those who are to be measured, the server among them.
pub async fn hold(time: Duration) {
    let end = Instant::now() + time;
    if time > COARSE {
        tokio::time::sleep(time - COARSE).await;
    }
    let rest = move || thread::sleep(end.saturating_duration_since(Instant::now()));
    tokio::task::spawn_blocking(rest).await.expect("sleeping does not panic");
}
