//! What an answer that is an error means for whoever asked.

use redis::{ErrorKind, RedisError};

/// Whether the same call may succeed a moment later: the network, or a server that starts, fails
/// over, is busy, or whose functions are removed just now.
pub(crate) fn is_transient(error: &RedisError) -> bool {
    const CODES: [&str; 8] = [
        "BUSY",
        "CLUSTERDOWN",
        "LOADING",
        "MASTERDOWN",
        "NOREPLICAS",
        "READONLY",
        "TRYAGAIN",
        "UNBLOCKED",
    ];
    error.is_io_error()
        || error.is_unrecoverable_error()
        || error.redirect_node().is_some()
        // Between two primaries the sentinels know of none.
        || error.kind() == ErrorKind::MasterNameNotFoundBySentinel
        || is_missing_function(error)
        || CODES.iter().any(|code| says(error, code))
}

/// Whether the server has no such function.
pub(crate) fn is_missing_function(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.contains("Function not found"))
}

/// Whether the server answered with this error. Where a command in a script meets it, Redis 6.2
/// wraps it in one of its own: "ERR Error running script (...): -READONLY ...".
pub(crate) fn says(error: &RedisError, code: &str) -> bool {
    let wrapped = format!("-{code} ");
    error.code() == Some(code) || error.detail().is_some_and(|detail| detail.contains(&wrapped))
}
