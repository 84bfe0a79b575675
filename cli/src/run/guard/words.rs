//! Messages between the CLI and its guard, one line each.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use nix::unistd::Pid;

use crate::run::command::{Change, Ended};

/// A message from the CLI to the guard.
#[derive(Debug, Clone, PartialEq)]
pub enum Word {
    /// Start a process for the command, with this permit: see `starter.rs`.
    Prepare { token: u64, id: String },
    /// The process ID of the command, for a guard that did not start the command itself.
    Started(Pid),
    /// The command may run for this time. A later message replaces an earlier message.
    MayRun(Duration),
    /// The command got SIGTERM, and must be killed after this time.
    Ending(Duration),
    /// Nothing is left to guard.
    Done,
}

/// A message from the guard to the CLI.
#[derive(Debug, Clone, PartialEq)]
pub enum Report {
    Prepared(Pid),
    /// The process could not be started, for this reason.
    Failed(String),
    /// The state of the command, whose parent is the guard, has changed.
    Changed(Change),
    /// No process of the command is left, except those that the guard has reported as not ended.
    Over,
}

pub fn read_word(line: &str) -> Option<Word> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    Some(match word {
        "prepare" => {
            let (token, id) = rest.split_once(' ')?;
            Word::Prepare { token: token.parse().ok()?, id: id.to_owned() }
        }
        "started" => Word::Started(Pid::from_raw(rest.parse().ok()?)),
        "may-run" => Word::MayRun(Duration::from_millis(rest.parse().ok()?)),
        "ending" => Word::Ending(Duration::from_millis(rest.parse().ok()?)),
        "done" => Word::Done,
        _ => return None,
    })
}

pub fn read_report(line: &str) -> Option<Report> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    Some(match word {
        "prepared" => Report::Prepared(Pid::from_raw(rest.parse().ok()?)),
        "failed" => Report::Failed(rest.to_owned()),
        "exited" => Report::Changed(Change::Ended(Ended::Exited(rest.parse().ok()?))),
        "killed" => Report::Changed(Change::Ended(Ended::Killed(rest.parse().ok()?))),
        "stopped" => Report::Changed(Change::Stopped(rest.parse().ok()?)),
        "continued" => Report::Changed(Change::Continued),
        "over" => Report::Over,
        _ => return None,
    })
}

impl Display for Word {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prepare { token, id } => write!(f, "prepare {token} {id}"),
            Self::Started(command) => write!(f, "started {command}"),
            Self::MayRun(left) => write!(f, "may-run {}", left.as_millis()),
            Self::Ending(left) => write!(f, "ending {}", left.as_millis()),
            Self::Done => f.write_str("done"),
        }
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prepared(command) => write!(f, "prepared {command}"),
            Self::Failed(reason) => write!(f, "failed {}", reason.replace('\n', " ")),
            Self::Changed(Change::Ended(Ended::Exited(status))) => write!(f, "exited {status}"),
            Self::Changed(Change::Ended(Ended::Killed(signal))) => write!(f, "killed {signal}"),
            Self::Changed(Change::Stopped(signal)) => write!(f, "stopped {signal}"),
            Self::Changed(Change::Continued) => f.write_str("continued"),
            Self::Over => f.write_str("over"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_between_the_cli_and_its_guard_survive_a_round_trip() {
        for word in [
            Word::Prepare { token: 1_795_361_222_707_706, id: "P:a.7.k3:1:30000:9fJ2".to_owned() },
            Word::Started(Pid::from_raw(4711)),
            Word::MayRun(Duration::from_millis(29_999)),
            Word::Ending(Duration::from_millis(500)),
            Word::Done,
        ] {
            assert_eq!(read_word(&word.to_string()), Some(word));
        }
        for report in [
            Report::Prepared(Pid::from_raw(4711)),
            Report::Failed("no such file".to_owned()),
            Report::Changed(Change::Ended(Ended::Exited(255))),
            Report::Changed(Change::Ended(Ended::Killed(40))),
            Report::Changed(Change::Stopped(20)),
            Report::Changed(Change::Continued),
            Report::Over,
        ] {
            assert_eq!(read_report(&report.to_string()), Some(report));
        }
        assert_eq!((read_word("started all"), read_report("exited")), (None, None));
    }
}
