//! What ended a command: a line for standard error, and an exit status.

use std::error::Error as StdError;
use std::fmt::{self, Display, Formatter};
use std::io;
use std::process::ExitCode;

use redis_semaphore::Error;

/// The answer is no.
pub const NO: u8 = 1;
/// Wrong options, as clap has it.
pub const USAGE: u8 = 2;
/// Redis cannot be reached or used, or gave no answer.
pub const UNAVAILABLE: u8 = 69;
/// The permit was lost.
pub const LOST: u8 = 70;
/// There was no permit in time.
pub const NO_PERMIT: u8 = 75;

#[derive(Debug)]
pub struct Failure {
    pub status: u8,
    pub reason: String,
}

impl Failure {
    pub fn new(status: u8, reason: impl Display) -> Self {
        Self { status, reason: reason.to_string() }
    }

    pub fn usage(reason: impl Display) -> Self {
        Self::new(USAGE, reason)
    }

    /// One of several semaphores cannot be used.
    pub fn from_error_about(name: &str, error: &Error) -> Self {
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        let text = error.to_string();
        // The text may have the name already.
        let about = if text.contains(name) { String::new() } else { format!("{name}: ") };
        Self::new(NO, format!("{about}{text}{cause}"))
    }

    pub fn tell(self) -> ExitCode {
        eprintln!("redis-semaphore: {}", self.reason);
        ExitCode::from(self.status)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl StdError for Failure {}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match error {
            Error::Invalid { .. } | Error::TooHeavy { .. } | Error::NoLimit { .. } => USAGE,
            Error::Lost { .. } => LOST,
            Error::Timeout { .. } => NO_PERMIT,
            _ => UNAVAILABLE,
        };
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        Self::new(status, format!("{error}{cause}"))
    }
}

/// Of standard output: whoever reads it has gone.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(74, format!("writing the output failed: {error}"))
    }
}
