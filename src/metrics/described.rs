//! All metrics of a client: their names, units and texts. The CLI's exporter has separate metrics
//! about servers.

use ::metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram};

use super::{COMMANDS, MESSAGES};

pub(super) const ACQUIRES: &str = "redis_semaphore_client_acquires_total";
pub(super) const WAIT: &str = "redis_semaphore_client_wait_seconds";
pub(super) const QUEUED: &str = "redis_semaphore_client_queued";
pub(super) const HELD: &str = "redis_semaphore_client_held";
pub(super) const HOLD: &str = "redis_semaphore_client_hold_seconds";
pub(super) const LOST: &str = "redis_semaphore_client_lost_total";
pub(super) const REFRESH_FAILURES: &str = "redis_semaphore_client_refresh_failures_total";
pub(super) const RECONNECTS: &str = "redis_semaphore_client_reconnects_total";
pub(super) const CALL: &str = "redis_semaphore_client_call_seconds";
pub(super) const BATCH: &str = "redis_semaphore_client_batch_size";

/// Describes all metrics to the recorder, and creates the counters that belong to no semaphore.
pub(super) fn describe() {
    let (count, seconds) = (Unit::Count, Unit::Seconds);
    describe_counter!(ACQUIRES, count, "Finished requests for a permit, by outcome");
    describe_histogram!(WAIT, seconds, "Time from a queued request to its permit");
    describe_gauge!(QUEUED, count, "Queued requests of this client");
    describe_gauge!(HELD, count, "The weight of the permits that this client holds");
    describe_histogram!(HOLD, seconds, "How long permits were held");
    describe_counter!(LOST, count, "Permits that were lost before they were released");
    describe_counter!(REFRESH_FAILURES, count, "Refreshes that failed and are retried");
    describe_counter!(RECONNECTS, count, "Connections to Redis that replaced a lost connection");
    describe_histogram!(CALL, seconds, "Script calls, by outcome");
    describe_histogram!(BATCH, count, "Requests sent in one call");
    for connection in [COMMANDS, MESSAGES] {
        counter!(RECONNECTS, "connection" => connection).increment(0);
    }
}
