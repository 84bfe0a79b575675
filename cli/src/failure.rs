//! Errors that end a command: a line on standard error, and an exit status.

use std::error::Error as StdError;
use std::fmt::{self, Display, Formatter};
use std::io;
use std::sync::Arc;

use nix::errno::Errno;
use redis_semaphore::Error;
use redis_semaphore::redis::RedisError;

/// The command completed with a negative result.
pub const NO: u8 = 1;
/// An option is wrong. clap uses the same status.
pub const USAGE: u8 = 2;
/// Redis is unreachable or unusable, rejected the call, or did not reply.
pub const UNAVAILABLE: u8 = 69;
/// The permit was lost.
pub const LOST: u8 = 70;
/// `top` has a bug (EX_SOFTWARE of sysexits.h). `top` holds no permit, so this status cannot mean a
/// lost permit.
#[cfg(feature = "top")]
pub const SOFTWARE: u8 = 70;
/// The system rejected a call, for example to start a process or to install a signal handler.
pub const SYSTEM: u8 = 71;
/// The output could not be written.
pub const UNWRITABLE: u8 = 74;
/// No permit was granted in time.
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

    /// Returns a function for `map_err`. The failure's text begins with `step`, which names what
    /// failed.
    pub fn system(step: &str) -> impl Fn(io::Error) -> Self {
        move |error| Self::new(SYSTEM, format!("{step}: {}", with_remedy(&error)))
    }

    /// Returns the failure for a call that makes a change. If there was no reply, the server may
    /// have made the change.
    pub fn of_change(error: Error) -> Self {
        let may_be_done = matches!(error, Error::Unavailable { .. });
        let Self { status, reason } = Self::from(error);
        // The advice comes first, because the end of the text could be cut off on a narrow screen.
        let advice = match may_be_done {
            true => "the change may have been made; check before you repeat it: ",
            false => "",
        };
        Self { status, reason: format!("{advice}{reason}") }
    }

    /// Returns the failure for one of several semaphores. The text of the error names the
    /// semaphore.
    pub fn of_one(error: &Error) -> Self {
        Self::new(NO, with_cause(error))
    }
}

/// Returns the text of an error, with advice if the system lacks a resource.
pub fn with_remedy(error: &io::Error) -> String {
    let remedy = remedy(error).map(|remedy| format!(": {remedy}")).unwrap_or_default();
    format!("{error}{remedy}")
}

/// Returns advice if the system lacks a resource, or `None` for any other error.
pub fn remedy(error: &io::Error) -> Option<&'static str> {
    Some(match Errno::from_raw(error.raw_os_error()?) {
        Errno::EMFILE => "raise `ulimit -n`",
        Errno::ENFILE => "close files on this machine, or raise the sysctl fs.file-max",
        Errno::EAGAIN => "raise `ulimit -u` or `ulimit -v`, or the process limit of the cgroup",
        Errno::ENOMEM => "raise `ulimit -v`, or the memory limit of the cgroup",
        _ => return None,
    })
}

/// Returns whether a connection failed because the system lacks a resource.
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

/// Returns the library's text with the cause of the error. The CLI's options replace the library's
/// names.
fn with_cause(error: &Error) -> String {
    if let Error::Invalid { what, reason, .. } = error
        && let Some(option) = option_of(what)
    {
        return format!("{option}: {}", with_options(reason));
    }
    // The library's text contains redis-rs's error, but not the source of that error.
    let cause = error.source().and_then(StdError::source);
    let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
    // If the cause is an error of a parser, it may have several lines.
    format!("{}{}", with_options(&error.to_string()), cause.lines().collect::<Vec<_>>().join(" "))
}

/// Advice that names the library's API, and the same advice with the CLI's options.
const WORDS: [(&str, &str); 7] = [
    ("use a longer lease or max_hold", "use a longer --lease"),
    ("use a longer lease", "use a longer --lease"),
    ("pass the authority to the client", "pass the authority with --tls-ca"),
    ("pass the signing authority to the client", "pass the signing authority with --tls-ca"),
    ("pass one to the client", "pass one with --tls-cert and --tls-key"),
    (
        "add one to the URL, as in redis://user:password@host:6379/",
        "set it in REDIS_PASSWORD or with --password-file, and its user with --user",
    ),
    ("needs a longer response_timeout", "needs a longer --response-timeout"),
];

/// Returns a text of the library, in which the CLI's options replace the library's names.
pub fn with_options(text: &str) -> String {
    WORDS.iter().fold(text.to_owned(), |text, (theirs, ours)| text.replace(theirs, ours))
}

fn option_of(what: &str) -> Option<&'static str> {
    Some(match what {
        "group" => "--group",
        "head_start" => "--head-start",
        "lease" => "--lease",
        "certificates" => "--tls-ca, --tls-cert, --tls-key",
        "nodes" | "servers" | "url" => "--url (REDIS_URL)",
        "prefix" => "--prefix",
        "response_timeout" => "--response-timeout",
        _ => return None,
    })
}

/// Any error: a text for a person, a `Failure`, or an error of the library.
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
