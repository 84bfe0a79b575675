//! Earlier designs, for comparison. They follow the descriptions in "Redis in Action" and in later
//! articles, with every improvement that the descriptions allow: IDs are unique, tasks share
//! connections if possible, and related commands are sent together.

pub mod blocking_list;
pub mod fair;
pub mod locked;
pub mod sets;

use std::time::Duration;

/// The longest pause between two polls, in ms. "Redis in Action" polls its locks at intervals of 1
/// ms. The book leaves the polling of semaphores to programs, which usually pause for about 10 ms.
pub const SHORT_PAUSE: u64 = 10;
/// With 1,000 tasks, polls with the short pause keep the server so busy that no task gets a permit.
/// This pause reduces the load, but delays every task.
pub const LONG_PAUSE: u64 = 100;

/// Pauses before the next attempt. The pause is random, so that tasks do not try again at the same
/// time. The pause is at least a tenth of `longest`, and at most `longest`.
async fn pause(longest: u64) {
    let random = uuid::Uuid::new_v4().as_fields().0 as f64 / u32::MAX as f64;
    let millis = longest as f64 * (0.1 + 0.9 * random);
    tokio::time::sleep(Duration::from_secs_f64(millis / 1000.0)).await;
}
