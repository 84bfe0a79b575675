//! What ended a command: a line for standard error, and an exit status.

use std::error::Error as StdError;
use std::fmt::{self, Display, Formatter};
use std::io;
use std::sync::Arc;

use nix::errno::Errno;
use redis_semaphore::Error;
use redis_semaphore::redis::RedisError;

/// The answer is no.
pub const NO: u8 = 1;
/// Wrong options, as clap has it.
pub const USAGE: u8 = 2;
/// Redis cannot be reached or used, refused the call, or gave no answer.
pub const UNAVAILABLE: u8 = 69;
/// The permit was lost.
pub const LOST: u8 = 70;
/// A bug of `top`, which loses no permits. As sysexits.h has it.
#[cfg(feature = "top")]
pub const SOFTWARE: u8 = 70;
/// The system refused what any program needs: a process, a signal.
pub const SYSTEM: u8 = 71;
/// The output could not be written.
pub const UNWRITABLE: u8 = 74;
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

    /// For `map_err`: what could not be done.
    pub fn system(step: &str) -> impl Fn(io::Error) -> Self {
        move |error| {
            let remedy = remedy(&error).map(|remedy| format!(": {remedy}")).unwrap_or_default();
            Self::new(SYSTEM, format!("{step}: {error}{remedy}"))
        }
    }

    /// Of a change: where nothing was answered it may have been done all the same.
    pub fn of_change(error: Error) -> Self {
        let may_be_done = matches!(error, Error::Unavailable { .. });
        let Self { status, reason } = Self::from(error);
        let advice = if may_be_done {
            ": it may have been done or not: look before you repeat it"
        } else {
            ""
        };
        Self { status, reason: format!("{reason}{advice}") }
    }

    /// One of several semaphores cannot be used, which the error names.
    pub fn of_one(error: &Error) -> Self {
        Self::new(NO, with_cause(error))
    }
}

/// Against a lack of what any program needs. None where there is no lack.
pub fn remedy(error: &io::Error) -> Option<&'static str> {
    Some(match Errno::from_raw(error.raw_os_error()?) {
        Errno::EMFILE => "raise `ulimit -n`",
        Errno::ENFILE => "the machine has too many files open",
        Errno::EAGAIN => "raise `ulimit -u`, or the limit of processes of the cgroup",
        Errno::ENOMEM => "raise `ulimit -v`, or the limit of memory of the cgroup",
        _ => return None,
    })
}

/// Whether a connection failed for such a lack.
fn is_lack(error: &RedisError) -> bool {
    let cause =
        error.source().and_then(|cause| cause.downcast_ref::<Arc<dyn StdError + Send + Sync>>());
    let cause = cause.and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.and_then(remedy).is_some()
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
            Error::Connect { source: Some(ref source), .. } if is_lack(source) => SYSTEM,
            _ => UNAVAILABLE,
        };
        Self::new(status, with_cause(&error))
    }
}

/// The library's words, but for what has another name here.
fn with_cause(error: &Error) -> String {
    if let Error::Invalid { what, reason, .. } = error
        && let Some(option) = option_of(what)
    {
        return format!("{option}: {}", reason.replace(AUTHORITY, WITH_TLS_CA));
    }
    // That of redis-rs: one without a source is told by the library's words.
    let cause = error.source().and_then(StdError::source);
    let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
    // One line, whatever a parser has to say.
    format!("{}{}", with_options(&error.to_string()), cause.lines().collect::<Vec<_>>().join(" "))
}

const AUTHORITY: &str = "name the authority to the client";
const WITH_TLS_CA: &str = "name the authority with --tls-ca";

/// Advice in the words of the library's API, and the same advice with the options of this tool.
const WORDS: [(&str, &str); 4] = [
    (AUTHORITY, WITH_TLS_CA),
    ("give the client one", "give one with --tls-cert and --tls-key"),
    (
        "give one, as in redis://user:password@host:6379/",
        "give one by REDIS_PASSWORD or --password-file, and its user by --user",
    ),
    ("needs a longer response_timeout", "needs a longer --response-timeout"),
];

/// A text of the library with the names of this tool's options.
pub fn with_options(text: &str) -> String {
    WORDS.iter().fold(text.to_owned(), |text, (theirs, ours)| text.replace(theirs, ours))
}

fn option_of(what: &str) -> Option<&'static str> {
    Some(match what {
        "head_start" => "--head-start",
        "lease" => "--lease",
        "certificates" => "--tls-ca, --tls-cert, --tls-key",
        "nodes" | "servers" | "url" => "--url (REDIS_URL)",
        "prefix" => "--prefix",
        "response_timeout" => "--response-timeout",
        _ => return None,
    })
}

/// Where anything may fail: a message for a person, or one of those above.
pub type AnyError = Box<dyn StdError + Send + Sync>;

impl From<AnyError> for Failure {
    fn from(error: AnyError) -> Self {
        match error.downcast::<Self>() {
            Ok(failure) => *failure,
            Err(error) => match error.downcast::<Error>() {
                Ok(error) => Self::from(*error),
                Err(error) => Self::new(UNAVAILABLE, error),
            },
        }
    }
}
