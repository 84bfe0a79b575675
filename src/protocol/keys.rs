//! The keys of a semaphore, and the names from which they are made.

use crate::error::Error;
use crate::protocol::id::MAX_CLIENT_NAME;

const MAX_NAME: usize = 512;
const MAX_PREFIX: usize = 200;

pub(crate) type Keys = [String; 6];

/// The number of keys that a call has if the semaphore has no groups. While a cluster slot is
/// migrating, calls with a key that does not exist are rejected.
pub(crate) const KEYS_WITHOUT_GROUPS: usize = 4;

/// Returns the keys in the order in which every script takes them. The name in braces is the hash
/// tag, so a cluster keeps the keys together.
pub(crate) fn keys(prefix: &str, name: &str) -> Keys {
    let names = ["permits", "queue", "clients", "state", "order", "turns"];
    names.map(|key| format!("{prefix}:{{{name}}}:{key}"))
}

fn check_length(what: &'static str, text: &str, longest: usize) -> Result<(), Error> {
    match text.len() {
        length if (1..=longest).contains(&length) => Ok(()),
        length => Err(Error::invalid(what, format!("must be 1 to {longest} bytes, not {length}"))),
    }
}

/// Checks each character. `wanted` says which characters the text must have.
fn check_characters(
    what: &'static str,
    text: &str,
    is_allowed: impl Fn(&char) -> bool,
    wanted: impl FnOnce() -> String,
) -> Result<(), Error> {
    match text.chars().find(|c| !is_allowed(c)) {
        Some(c) => {
            let reason = format!("{text:?} has {c:?} in it: must have {}", wanted());
            Err(Error::invalid(what, reason))
        }
        None => Ok(()),
    }
}

/// Checks a name or prefix, which becomes part of keys. Braces would change the hash tag.
pub(crate) fn check_name(what: &'static str, name: &str) -> Result<(), Error> {
    check_length(what, name, MAX_NAME)?;
    let may_be_in_name = |c: &char| !matches!(c, '{' | '}') && !c.is_ascii_control();
    check_characters(what, name, may_be_in_name, || {
        format!("no braces or control characters{}", without_braces(what, name))
    })
}

/// Suggests a name without braces if users have probably copied a key, or the braced part of a key.
fn without_braces(what: &str, name: &str) -> String {
    if what != "name" || name.contains("\\u{") {
        return String::new(); // the braces belong to an escape, not to a key
    }
    let inner = name.split_once('{').and_then(|(start, rest)| {
        let (inner, end) = rest.rsplit_once('}')?;
        let is_key =
            (start.is_empty() || start.ends_with(':')) && (end.is_empty() || end.starts_with(':'));
        is_key.then(|| inner.trim_matches(['{', '}']))
    });
    let inner = inner.filter(|inner| check_name("name", inner).is_ok());
    inner.map(|inner| format!(": write {inner:?}")).unwrap_or_default()
}

/// Checks a prefix. A prefix also begins channels and ACL rules, and white space separates ACL
/// rules.
pub(crate) fn check_prefix(prefix: &str) -> Result<(), Error> {
    check_length("prefix", prefix, MAX_PREFIX)?;
    check_name("prefix", prefix)?;
    check_characters("prefix", prefix, |c| !c.is_whitespace(), || "no white space".to_owned())
}

/// Checks a client name, which becomes part of IDs and channels.
pub(crate) fn check_client_name(client_name: &str) -> Result<(), Error> {
    check_length("client name", client_name, MAX_CLIENT_NAME)?;
    check_characters("client name", client_name, may_be_in_client_name, || {
        "only letters, digits, \".\", \"_\" and \"-\"".to_owned()
    })
}

pub(crate) fn may_be_in_client_name(c: &char) -> bool {
    c.is_ascii_alphanumeric() || "._-".contains(*c)
}
