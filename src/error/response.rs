//! Interprets the errors that a server returned.

use redis::RedisError;

/// Whether the error means that the server does not have the function.
pub(crate) fn is_missing_function(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.contains("Function not found"))
}

/// Whether the text of an error means an unknown command. The text differs between servers.
pub(crate) fn is_unknown_command(text: &str) -> bool {
    let words = text.to_lowercase();
    words.contains("unknown") && words.contains("command")
}

/// Whether the server returned an error with this code. If a command in a script fails, Redis 6.2
/// wraps its error: "ERR Error running script (...): -READONLY ...".
pub(crate) fn says(error: &RedisError, code: &str) -> bool {
    let wrapped = format!("-{code} ");
    error.code() == Some(code) || error.detail().is_some_and(|detail| detail.contains(&wrapped))
}
