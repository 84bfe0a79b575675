//! Computes for how long the holder of a revoked permit and the next holder may work at the same
//! time.

use std::time::Duration;

/// The most, as `Semaphore::revoke` has it: until a renewal tells the holder; and where none does.
pub fn overlap(lease: Duration) -> (Duration, Duration) {
    (lease / 3, lease)
}
