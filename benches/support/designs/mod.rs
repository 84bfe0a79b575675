//! Designs that came before this crate's, written from the descriptions in "Redis in Action" and in
//! articles that follow it, to be measured beside it. They are as good as their descriptions allow:
//! ids are unique, tasks share a connection where they can, and what belongs together travels
//! together.

pub mod blocking_list;
pub mod fair;
pub mod locked;
pub mod sets;

use std::time::Duration;

/// The longest pause, in ms, between two polls: the book polls its locks every millisecond, leaves
/// semaphores to their callers, and those usually take about 10 ms.
pub const SHORT_PAUSE: u64 = 10;
/// With a thousand tasks the short pause keeps the server so busy with those it refuses that nobody
/// gets in. This one may help, and makes everybody late.
pub const LONG_PAUSE: u64 = 100;

/// What a refused task does before it asks again. A random time, from a tenth of the longest pause
/// on, so that tasks which were refused together do not come back together.
async fn pause(longest: u64) {
    let millis = longest as f64 * (0.1 + 0.9 * random());
    tokio::time::sleep(Duration::from_secs_f64(millis / 1000.0)).await;
}

/// From 0 to 1. Ids are random already, so the benches need no crate for this.
pub fn random() -> f64 {
    uuid::Uuid::new_v4().as_fields().0 as f64 / u32::MAX as f64
}
