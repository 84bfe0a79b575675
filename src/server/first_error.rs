//! The first error that a server returned over a connection.
//!
//! If the login fails, redis-rs creates its own error. That error lacks the code or the whole text
//! of the server's error.

use std::sync::{Arc, OnceLock};

use redis::RedisError;

use crate::error::server_error;

/// The maximum number of bytes to keep. A server that is not Redis may send more. A password that
/// the error quotes must fit, because only a whole password is recognized.
const MAX_BYTES: usize = 10_000;

/// The first error of one connection, which all copies of this value share.
#[derive(Clone, Default)]
pub(super) struct FirstError(Arc<OnceLock<String>>);

impl FirstError {
    pub(super) fn get(&self) -> Option<RedisError> {
        server_error(self.0.get()?)
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
