//! The texts of errors.

use std::error::Error as StdError;
use std::fmt::{self, Display, Formatter};

use super::{Error, Rounded, cause_of};

/// The maximum number of characters of each text in `Debug` output, because a server may echo a
/// megabyte.
const MAX_PRINTED: usize = 400;

impl Display for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid { what, reason } => write!(f, "{what}: {reason}"),
            Self::Connect { kind, address, reason, .. } => {
                let what = if kind.is_connected() { "use" } else { "connect to" };
                write!(f, "cannot {what} Redis at {address}: {reason}")
            }
            Self::TooHeavy { semaphore, weight, limit } => write!(
                f,
                "semaphore {semaphore}: a weight of {weight} exceeds the limit of {limit}: \
                 request less, or raise the limit"
            ),
            Self::NoLimit { semaphore } => write!(
                f,
                "semaphore {semaphore}: no limit exists: declare one, or set a runtime limit"
            ),
            Self::LeaseTooShort { semaphore, lease } => write!(
                f,
                "semaphore {semaphore}: each granted lease ({}) expired before the reply arrived: \
                 use a longer lease",
                Rounded(*lease)
            ),
            Self::Timeout { semaphore, waited, position, outage } => {
                write!(f, "semaphore {semaphore}: no permit within {} (", Rounded(*waited))?;
                match position {
                    Some(position) => write!(f, "last queue position: {position}")?,
                    None => f.write_str("no queue position is known")?,
                }
                match outage {
                    Some(outage) => write!(f, "), and {outage}"),
                    None => f.write_str("): retry, or use a longer timeout"),
                }
            }
            Self::Unavailable { semaphore, operation, server, elapsed, source } => {
                let (elapsed, cause) = (Rounded(*elapsed), cause_of(source));
                write!(
                    f,
                    "semaphore {semaphore}: {operation} failed for {elapsed} ({server}: {}): {}",
                    cause.found, cause.advice
                )
            }
            Self::Rejected { semaphore, operation, server, source } => {
                let cause = cause_of(source);
                write!(
                    f,
                    "semaphore {semaphore}: {operation} was rejected ({server}: {}): {}",
                    cause.found, cause.advice
                )
            }
            Self::NotAcknowledged { semaphore, replicas, wanted, within } => write!(
                f,
                "semaphore {semaphore}: only {replicas} of {wanted} replicas acknowledged the \
                 permit within {}, so it was released: check INFO replication on the server, or \
                 allow the replicas more time",
                Rounded(*within)
            ),
            Self::Lost { semaphore, operation, id } => write!(
                f,
                "semaphore {semaphore}: {operation} failed, because the permit {id} was already \
                 lost, so other requests may have been granted: check the work done since then, or \
                 use a longer lease or max_hold"
            ),
            Self::Closed { semaphore } => {
                write!(
                    f,
                    "semaphore {semaphore} was closed in this process: build a new one to acquire \
                     again"
                )
            }
            Self::Shutdown => f.write_str(
                "the client was shut down, the runtime in which it connected has ended, or a task \
                 of the client panicked (for example in a log subscriber): connect again, in a \
                 runtime that keeps running",
            ),
            Self::Script(what) => write!(f, "script: {what}"),
            Self::Redis(error) => f.write_str(&cause_of(error).reason()),
        }
    }
}

/// Prints the variant, the displayed text, and the error of Redis or the network.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut printed = f.debug_tuple(self.variant());
        printed.field(&format_args!("{:.MAX_PRINTED$}", self.to_string()));
        // A `RedisError` without a source is already part of the displayed text.
        if let Some(source) = self.source().and_then(StdError::source) {
            printed.field(&format_args!("{:.MAX_PRINTED$}", source.to_string()));
        }
        printed.finish()
    }
}
