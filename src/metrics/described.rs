//! All metrics: their names, units and texts. Not those of the tool's exporter, which looks at
//! servers: these say what one client does, as their names tell.

use ::metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram};

use super::{COMMANDS, SUBSCRIPTION};

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

/// Tells the recorder all of them, and begins to count what no semaphore has of its own.
pub(super) fn describe() {
    let (count, seconds) = (Unit::Count, Unit::Seconds);
    describe_counter!(ACQUIRES, count, "Requests for a permit that have ended, by outcome");
    describe_histogram!(
        WAIT,
        seconds,
        "From a request to its permit, of those that came from the queue"
    );
    describe_gauge!(QUEUED, count, "Requests of this client that are in the queue");
    describe_gauge!(HELD, count, "The weight of the permits that this client holds");
    describe_histogram!(HOLD, seconds, "How long permits were held");
    describe_counter!(LOST, count, "Permits that were lost before they were given back");
    describe_counter!(REFRESH_FAILURES, count, "Renewals that failed, and are repeated");
    describe_counter!(RECONNECTS, count, "Connections to Redis that took a lost one's place");
    describe_histogram!(CALL, seconds, "Calls of scripts, by what became of them");
    describe_histogram!(BATCH, count, "Requests that went out in one call");
    for connection in [COMMANDS, SUBSCRIPTION] {
        counter!(RECONNECTS, "connection" => connection).increment(0);
    }
}
