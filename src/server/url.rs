//! What is wrong with a URL. Nothing of one is repeated that may have a password in it.

use redis::RedisError;

use crate::error::Error;

const LOOK: &str = "a URL looks like redis://host:6379/0 (rediss:// for TLS), or \
                    redis+unix:///path/of/socket";
const SCHEMES: [&str; 7] =
    ["redis", "rediss", "valkey", "valkeys", "redis+unix", "valkey+unix", "unix"];

pub(crate) fn explain(url: &str, error: &RedisError) -> Error {
    let scheme = url.split_once("://").map(|(scheme, _)| scheme);
    let reason = match scheme {
        _ if url.is_empty() => format!("it is empty: {LOOK}"),
        Some(scheme) if SCHEMES.contains(&scheme) => return explain_part("url", error),
        Some(scheme) if scheme.chars().all(|c| c.is_ascii_alphabetic()) => {
            format!("it begins with {scheme}://, which is not for Redis: {LOOK}")
        }
        None if is_public(url) => {
            format!("{url:?} does not begin with redis://: write redis://{url}; {LOOK}")
        }
        _ => format!("it does not begin with redis://: {LOOK}"),
    };
    Error::invalid("url", reason)
}

/// Refuses what redis-rs, which could read the URL, has passed over: whoever heeds it uses another
/// database.
pub(crate) fn check(url: &str) -> Result<(), Error> {
    let is_socket = url.split_once("://").is_some_and(|(scheme, _)| scheme.ends_with("unix"));
    let query = url.split_once('?').filter(|_| !is_socket).map_or("", |(_, query)| query);
    let mut names = query.split(['&', '#']).filter_map(|pair| pair.split_once('='));
    match names.find(|(name, _)| *name != "protocol") {
        Some((name, _)) => {
            Err(Error::invalid("url", format!("{name:?} behind \"?\" does not count: {LOOK}")))
        }
        None => Ok(()),
    }
}

/// Where only the error is known.
pub(crate) fn explain_part(what: &'static str, error: &RedisError) -> Error {
    let text = error.to_string();
    // After that come names of redis-rs.
    let found = text.split(" - ").next().unwrap_or_default();
    Error::invalid(
        what,
        match found {
            _ if text.contains("feature is not enabled") => {
                "it asks for TLS: build with the feature \"tls\" of redis-semaphore".to_owned()
            }
            "Redis URL did not parse" => format!(
                "host, port or password cannot be read (in a password @ is %40, / is %2F, : is %3A, \
                 # is %23, and a comma is %2C): {LOOK}"
            ),
            found => format!("{}: {LOOK}", found.to_lowercase()),
        },
    )
}

/// A short word or a host and a port, and nothing that may be secret.
fn is_public(url: &str) -> bool {
    let (host, port) = url.rsplit_once(':').unwrap_or((url, ""));
    let signs = if host.starts_with('[') { ".:-_[]" } else { ".-_" };
    url.len() <= 100
        && port.chars().all(|c| c.is_ascii_digit())
        && host.chars().all(|c| c.is_ascii_alphanumeric() || signs.contains(c))
}
