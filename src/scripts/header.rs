//! Reads the names of keys and arguments, and the flags, off the head comment of a script: its
//! lines up to the first that is no comment.

use std::path::Path;

use crate::error::Error;

pub(super) fn names(path: &Path, source: &str, array: &str) -> Result<Vec<String>, Error> {
    let opening = format!("-- {array}[");
    let mut names = Vec::new();
    for line in source.lines().take_while(|line| line.starts_with("--")) {
        let Some((number, rest)) = line.strip_prefix(&opening).and_then(|l| l.split_once(']'))
        else {
            continue;
        };
        let expected = (names.len() + 1).to_string();
        let name = rest.split_whitespace().next();
        match name {
            Some(name) if number.trim_end_matches('+') == expected => names.push(name.to_owned()),
            _ => {
                return Err(Error::Script(format!(
                    "{}: \"{line}\" should be {array}[{expected}] and a name",
                    path.display()
                )));
            }
        }
    }
    Ok(names)
}

/// From a line `-- Flags  allow-oom, allow-stale`: those of the script as a Redis function.
pub(super) fn flags(source: &str) -> Vec<String> {
    let head = source.lines().take_while(|line| line.starts_with("--"));
    let flags = head.filter_map(|line| line.strip_prefix("-- Flags ")).flat_map(|l| l.split(','));
    flags.map(|flag| flag.trim().to_owned()).filter(|flag| flag != "none").collect()
}
