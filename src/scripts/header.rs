//! Reads the names of keys and arguments, and the flags, from the header comment of a script.

use std::path::Path;

use crate::error::Error;

/// The start of a line that is replaced by a file.
pub(super) const INCLUDE: &str = "-- include: ";

/// The header comment: lines that begin with `--`, and empty lines, from the start of a file to the
/// first other line or include. A line that begins with `--[` also ends the header, because `--[[`
/// opens a comment that may end in mid-line.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    let is_comment = |line: &str| line.starts_with("--") && !line.starts_with("--[");
    text.lines()
        .take_while(move |line| line.is_empty() || is_comment(line) && !line.starts_with(INCLUDE))
}

pub(super) fn names(path: &Path, text: &str, array: &str) -> Result<Vec<String>, Error> {
    let opening = format!("-- {array}[");
    let mut names = Vec::new();
    for line in lines(text) {
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

/// The flags of the script as a Redis function, from a line `-- Flags  allow-oom, allow-stale`.
pub(super) fn flags(text: &str) -> Vec<String> {
    let flags =
        lines(text).filter_map(|line| line.strip_prefix("-- Flags ")).flat_map(|l| l.split(','));
    flags.map(|flag| flag.trim().to_owned()).filter(|flag| flag != "none").collect()
}
