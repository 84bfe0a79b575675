//! The four keys of a semaphore, and the names from which they are made.

use crate::Error;

const MAX_NAME: usize = 512;

/// permits, queue, waiting, state: in the order in which every script takes them. The name in
/// braces is their hash tag, so a cluster keeps them together.
#[derive(Debug)]
pub(crate) struct Keys(pub(crate) [String; 4]);

impl Keys {
    pub(crate) fn new(prefix: &str, name: &str) -> Self {
        Self(
            ["permits", "queue", "waiting", "state"]
                .map(|key| format!("{prefix}:{{{name}}}:{key}")),
        )
    }
}

/// A name or prefix becomes part of keys, so braces would move the hash tag.
pub(crate) fn check_name(what: &'static str, name: &str) -> Result<(), Error> {
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(Error::invalid(
            what,
            format!("must be 1 to {MAX_NAME} bytes, not {}", name.len()),
        ));
    }
    match name.chars().find(|c| matches!(c, '{' | '}') || c.is_ascii_control()) {
        Some(c) => Err(Error::invalid(
            what,
            format!("{name:?} has {c:?} in it: must have no braces or control characters"),
        )),
        None => Ok(()),
    }
}

/// A word travels in messages that are split at white space.
pub(crate) fn check_word(what: &'static str, word: &str, max: usize) -> Result<(), Error> {
    if word.is_empty() || word.len() > max {
        return Err(Error::invalid(what, format!("must be 1 to {max} bytes, not {}", word.len())));
    }
    let stranger = |c: &char| c.is_whitespace() || c.is_control();
    match word.chars().find(stranger) {
        Some(c) => Err(Error::invalid(
            what,
            format!("{word:?} has {c:?} in it: must have no white space or control characters"),
        )),
        None if word.starts_with('+') => Err(Error::invalid(what, "must not begin with \"+\"")),
        None => Ok(()),
    }
}
