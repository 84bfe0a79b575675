use std::error::Error as StdError;

use redis_semaphore::{ConnectErrorKind, Error};

/// Accepts a loss, because on a busy machine a permit may be lost before its release.
pub fn unless_lost(given_back: Result<(), Error>) {
    assert!(matches!(given_back, Ok(()) | Err(Error::Lost { .. })), "{given_back:?}");
}

pub fn kind_of(error: &Error) -> Option<ConnectErrorKind> {
    match error {
        Error::Connect { kind, .. } => Some(*kind),
        _ => None,
    }
}

/// Returns the text of an error, and the texts of the causes below the error of redis-rs. The
/// library's text already contains the text of the error of redis-rs.
pub fn chain(error: &Error) -> Vec<String> {
    let mut texts = vec![error.to_string()];
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(cause) = error.source() {
            texts.push(cause.to_string());
        }
        source = error.source();
    }
    texts.dedup();
    texts
}

pub fn whole(error: &Error) -> String {
    chain(error).join(": ")
}
