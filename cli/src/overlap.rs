//! Computes for how long the holder of a revoked permit and the next holder may work at the same
//! time.

use std::time::Duration;

/// Returns the longest overlaps, as `Semaphore::revoke` documents them: for a holder that can try
/// to refresh its lease, and for a holder that cannot.
pub fn overlap(lease: Duration) -> (Duration, Duration) {
    (lease / 3, lease)
}
