//! What time makes of an error: the one place that decides what passes by itself.

use redis::{ErrorKind, RedisError};

use super::answer::{is_missing_function, says};
use super::cause;

/// Whether the same call may succeed a moment later: the network, or a server that starts, fails
/// over, is busy, or whose functions are removed just now. This decides for connecting, calls,
/// releases and reads alike. The kind of the cause decides, so `cause.rs` has the only list of
/// codes.
pub(crate) fn is_transient(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_unrecoverable_error()
        || error.redirect_node().is_some()
        || is_missing_function(error)
        || says(error, "UNBLOCKED")
        || cause::of(error).kind.is_transient()
}

/// Whether the server can be read, but has no room for what is new: its memory or its disk is full.
/// New requests are rejected at once. Requests that wait, and clients that connect, may outlast it.
pub(crate) fn is_full(error: &RedisError) -> bool {
    says(error, "OOM") || says(error, "MISCONF")
}

/// Whether a server said so: the connection to it works.
pub(crate) fn is_refusal(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
}
