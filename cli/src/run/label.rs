//! The client name of a job: `LABEL.HOST.PROCESS`, or `HOST.PROCESS` without a label.

use std::path::Path;

use rustix::system::uname;

use super::options::Run;

/// The longest label. The library allows 91 letters for the whole client name.
const LONGEST: usize = 32;
const LONGEST_HOST: usize = 50;

pub fn of(asked: &Run) -> String {
    let command = asked.command.first().and_then(|command| Path::new(command).file_name());
    let command = command.map(|name| fitted(&name.to_string_lossy(), LONGEST));
    let label = asked.label.clone().or(command.filter(|name| !name.is_empty()));
    let host = fitted(&uname().nodename().to_string_lossy(), LONGEST_HOST);
    let host = if host.is_empty() { "host".to_owned() } else { host };
    let place = format!("{host}.{}", std::process::id());
    label.map_or(place.clone(), |label| format!("{label}.{place}"))
}

fn is_fit(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-')
}

fn fitted(text: &str, longest: usize) -> String {
    text.chars().filter(|letter| is_fit(*letter)).take(longest).collect()
}

/// Parses --label for clap.
pub fn parse(text: &str) -> Result<String, String> {
    match text.len() {
        1..=LONGEST if text.chars().all(is_fit) => Ok(text.to_owned()),
        _ => Err(format!("must be 1 to {LONGEST} of A-Z, a-z, 0-9, '.', '_' and '-'")),
    }
}
