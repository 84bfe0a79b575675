//! One clock for all processes of this machine, so that their reports can be compared and merged.

use rustix::time::{ClockId, clock_gettime};

pub const SECOND: u64 = 1_000_000_000;

/// The system's monotonic clock, in nanoseconds. `Instant` reads the same clock, but an `Instant`
/// cannot be sent to another process.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * SECOND + time.tv_nsec as u64
}
