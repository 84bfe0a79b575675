//! Interprets the errors that a server returned.

use redis::{RedisError, Value};

/// Returns the error in a line that a server sent. The line begins with `-`.
pub(crate) fn server_error(line: &str) -> Option<RedisError> {
    match redis::parse_redis_value(format!("{line}\r\n").as_bytes()) {
        Ok(Value::ServerError(error)) => Some(error.into()),
        _ => None,
    }
}

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
