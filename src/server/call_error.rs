//! An attempt of a call that failed.

use std::io;
use std::time::Duration;

use redis::{ErrorKind, RedisError};
use tokio::time::timeout;

use crate::error::{Error, is_transient};

#[derive(Debug)]
pub(crate) struct CallError {
    pub(crate) error: RedisError,
    pub(crate) may_have_run: bool,
}

impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        let Error::Redis(error) = error else {
            unreachable!("the embedded scripts are there: {error}");
        };
        let may_have_run = error.kind() == ErrorKind::Io;
        Self { error, may_have_run }
    }
}

impl CallError {
    pub(crate) fn is_transient(&self) -> bool {
        is_transient(&self.error)
    }
}

pub(crate) async fn within<T>(
    limit: Duration,
    run: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    timeout(limit, run).await.unwrap_or_else(|_| Err(took_too_long().into()))
}

pub(crate) fn took_too_long() -> RedisError {
    io::Error::new(io::ErrorKind::TimedOut, "the answer took too long").into()
}
