//! What an answer that is an error means for whoever asked.

use redis::RedisError;

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
