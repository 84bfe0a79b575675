//! The client name of a job: `LABEL.HOST.PROCESS`, or `HOST.PROCESS` without a label.

use std::path::Path;

use rustix::system::uname;

use super::options::Run;
use crate::identifier::is_fit;

/// The longest label. The library allows 91 letters for the whole client name.
pub const LONGEST: usize = 32;
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

fn fitted(text: &str, longest: usize) -> String {
    text.chars().filter(|letter| is_fit(*letter)).take(longest).collect()
}
