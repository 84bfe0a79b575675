//! The first error that a server returned over a connection.
//!
//! If the login fails, redis-rs creates its own error. That error lacks the code or the whole text
//! of the server's error.

use std::sync::{Arc, OnceLock};

use redis::{RedisConnectionInfo, RedisError, Value};

use crate::error::of_redis;

/// The maximum number of bytes to keep. A server that is not Redis may send more. A password that
/// the error quotes must fit, because only a whole password is recognized.
const MAX_BYTES: usize = 10_000;

/// The first error of one connection, which all copies of this value share.
#[derive(Clone, Default)]
pub(super) struct FirstError(Arc<OnceLock<String>>);

impl FirstError {
    /// Returns the error. If it is not a known error of Redis, it may quote the login, so the error
    /// is returned without the password.
    pub(super) fn get(&self, settings: &RedisConnectionInfo) -> Option<RedisError> {
        // Redis quotes the arguments of an unknown command, and shortens them.
        let line = self.0.get()?.split(", with args").next()?;
        let error = parsed(line)?;
        // If a URL lacks the colon before the password, the password counts as the user.
        let login = [settings.password(), settings.username()];
        match login.into_iter().flatten().find(|part| !part.is_empty()) {
            Some(secret) if of_redis(&error).is_none() => parsed(&line.replace(secret, "***")),
            _ => Some(error),
        }
    }

    /// Records the line of an error, including the `-` with which the line begins. Later errors are
    /// ignored.
    pub(super) fn set(&self, line: &[u8]) {
        self.0.get_or_init(|| String::from_utf8_lossy(line).into_owned());
    }

    /// Adds a byte to the line of an error that is arriving.
    pub(super) fn extend(&self, line: &mut Vec<u8>, byte: u8) {
        if line.len() < MAX_BYTES && self.0.get().is_none() {
            line.push(byte);
        }
    }
}

fn parsed(line: &str) -> Option<RedisError> {
    match redis::parse_redis_value(format!("{line}\r\n").as_bytes()) {
        Ok(Value::ServerError(error)) => Some(error.into()),
        _ => None,
    }
}
