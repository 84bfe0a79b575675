//! A failed attempt of a call.

use std::io;
use std::time::Duration;

use redis::{ErrorKind, RedisError};
use tokio::time::timeout;

use crate::error::{ConnectErrorKind, Error, cause_of, is_transient};

#[derive(Clone)]
pub(crate) struct CallError {
    pub(crate) error: RedisError,
    /// The server of this attempt, if it is known. A later attempt may use another server.
    pub(crate) server: Option<String>,
    pub(crate) may_have_run: bool,
    /// Whether the caller's deadline ended the attempt. The error of such an attempt gives less
    /// information than the error of an earlier attempt.
    pub(crate) was_cut_short: bool,
    /// Whether the call reached a server that could execute it.
    was_sent: bool,
}

impl From<RedisError> for CallError {
    fn from(error: RedisError) -> Self {
        // If a reply was cut off, redis-rs returns a parse error.
        let may_have_run = matches!(error.kind(), ErrorKind::Io | ErrorKind::Parse);
        Self { may_have_run, was_sent: !requires_login(&error), ..Self::unsent(error) }
    }
}

impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        let Error::Redis(error) = error else {
            unreachable!("all called scripts are embedded: {error}");
        };
        error.into()
    }
}

impl CallError {
    /// The call reached no server that could execute it.
    pub(crate) fn unsent(error: RedisError) -> Self {
        Self { error, server: None, may_have_run: false, was_cut_short: false, was_sent: false }
    }

    /// Records the server of the attempt.
    pub(super) fn at(self, server: String) -> Self {
        Self { server: Some(server), ..self }
    }

    /// The call was not sent, because its time was over.
    pub(super) fn unsent_in_time() -> Self {
        Self { was_cut_short: true, ..Self::unsent(took_too_long()) }
    }

    /// Whether a retry may help. A call that was not sent can always be retried, even if the login
    /// was rejected: the server accepted an earlier login, so a login may succeed again after the
    /// password is changed.
    pub(crate) fn is_transient(&self) -> bool {
        !self.was_sent || is_transient(&self.error)
    }
}

/// Whether the server requires a login now. It then accepts no call over the connection.
pub(super) fn requires_login(error: &RedisError) -> bool {
    cause_of(error).kind == ConnectErrorKind::Authentication
}

pub(crate) async fn within<T, E: From<RedisError>>(
    limit: Duration,
    run: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    timeout(limit, run).await.unwrap_or_else(|_| Err(took_too_long().into()))
}

pub(crate) fn took_too_long() -> RedisError {
    io::Error::new(io::ErrorKind::TimedOut, "the reply took too long").into()
}
