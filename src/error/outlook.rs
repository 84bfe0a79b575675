//! Decides which errors of redis-rs and of servers are transient.

use redis::{ErrorKind, RedisError};

use super::cause;
use super::response::{is_missing_function, says};

/// Whether the same call may succeed later. The result is true if the network failed, if the server
/// is starting, failing over or busy, or if the server has lost its functions. Connecting, calls,
/// releases and reads all use this function. The function uses the kind of the cause, so most codes
/// are listed only in `cause.rs`.
pub(crate) fn is_transient(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_unrecoverable_error()
        || error.redirect_node().is_some()
        || is_missing_function(error)
        || says(error, "UNBLOCKED")
        || cause::of(error).kind.is_transient()
}

/// Whether the server can be read, but has no space for new data: its memory or disk is full. New
/// requests are rejected immediately. Waiting requests and connecting clients are retried, because
/// the shortage may end in time.
pub(crate) fn is_full(error: &RedisError) -> bool {
    says(error, "OOM") || says(error, "MISCONF")
}

/// Whether the server returned the error, so the connection to it works.
pub(crate) fn is_refusal(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
}
