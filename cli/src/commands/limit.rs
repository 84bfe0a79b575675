//! `limit`: shows or changes the limit of a semaphore.

use std::process::ExitCode;
use std::str::FromStr;

use clap::Args;
use redis_semaphore::{Error, Inspection, Semaphore, SemaphoreClient};
use serde::Serialize;
use serde_json::json;

use super::{exists, must_exist};
use crate::escape::{argument, value};
use crate::failure::Failure;
use crate::format::Format;
use crate::group;
use crate::identifier::identifier;
use crate::limits::{limit_of, with_existing_limit};
use crate::number::number;
use crate::output::note;
use crate::server::options::Server;
use crate::server::{looking, with};
use crate::table::or_none;

/// `inspect_groups` lists at most this many groups.
const MOST_GROUPS: usize = 1000;

#[derive(Debug, Args)]
#[command(after_help = "\
A runtime limit applies to all processes and overrides declared limits until it is cleared. With \
0, no permit is granted. A lower limit revokes no permit.

Exit status: 0 if shown or changed, 1 if the semaphore does not exist.")]
pub struct Limit {
    /// Name of the semaphore
    #[arg(value_parser = argument)]
    pub name: String,
    /// New runtime limit; +N adds to the effective limit; clear restores the declared limit
    #[arg(value_name = "N|+N|clear", allow_negative_numbers = true)]
    pub change: Option<Change>,
    /// Group whose runtime cap to change
    #[arg(
        long,
        requires = "cap",
        // clap ignores `requires` if `cap` conflicts with another given argument.
        conflicts_with = "change",
        value_parser = identifier(group::LONGEST)
    )]
    pub group: Option<String>,
    /// New runtime cap of the group, which replaces the caps of its requests: 0 pauses the group;
    /// clear restores the caps of the requests
    #[arg(long, value_name = "N|clear", requires = "group", conflicts_with = "change")]
    pub cap: Option<Cap>,
    #[command(flatten)]
    pub format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    Set(u32),
    Add(u32),
    Clear,
}

impl FromStr for Change {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            number(0..=u32::MAX)(text).map_err(|wrong| format!("NUMBER, +NUMBER or clear: {wrong}"))
        };
        match (text, text.strip_prefix('+')) {
            ("clear", _) => Ok(Self::Clear),
            (_, Some(more)) => Ok(Self::Add(number(more)?)),
            _ => Ok(Self::Set(number(text)?)),
        }
    }
}

/// A new runtime cap, or `None` to clear it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cap(Option<u32>);

impl FromStr for Cap {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "clear" => Ok(Self(None)),
            _ => match number(0..=u32::MAX)(text) {
                Ok(cap) => Ok(Self(Some(cap))),
                Err(wrong) => Err(format!("{wrong}, or \"clear\"")),
            },
        }
    }
}

impl Change {
    /// Rejects a change that would fail, or that would create a semaphore by mistake.
    fn check(self, name: &str, before: &Inspection) -> Result<(), Failure> {
        match (self, limit_of(before)) {
            (Self::Clear, _) => must_exist(name, before),
            (Self::Add(more), Some(limit)) if limit.checked_add(more).is_none() => {
                Err(Failure::usage(format!(
                    "semaphore {name}: +{more} is too large: the effective limit is {limit}, and \
                     the largest possible limit is {}",
                    u32::MAX
                )))
            }
            _ => Ok(()),
        }
    }
}

/// The current limits, and the limits before a change.
#[derive(Serialize)]
struct Limits<'a> {
    name: &'a str,
    limit: Option<u32>,
    declared_limit: Option<u32>,
    runtime_limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<Before>,
}

#[derive(Serialize)]
struct Before {
    limit: Option<u32>,
    runtime_limit: Option<u32>,
}

pub fn run(server: &Server, asked: &Limit) -> Result<ExitCode, Failure> {
    let name = &*asked.name;
    if let (Some(group), Some(cap)) = (&asked.group, asked.cap) {
        return change_cap(server, asked, group, cap);
    }
    let limits = match asked.change {
        None => {
            let now = looking(server, async |client: &SemaphoreClient| {
                look_at(&with_existing_limit(client, name)?).await
            })?;
            must_exist(name, &now)?;
            Limits::of(name, &now)
        }
        Some(change) => with(server, async |client: &SemaphoreClient| {
            let semaphore = with_existing_limit(client, name)?;
            let before = look_at(&semaphore).await?;
            change.check(name, &before)?;
            if !exists(&before) {
                // If the name is misspelled, the intended semaphore has not changed.
                note(format_args!("semaphore {name} did not exist before: check the name"));
            }
            change_limit(&semaphore, name, change, &before).await.map_err(Failure::of_change)
        })?,
    };
    asked.format.say(json!(limits), limits.as_text())?;
    Ok(ExitCode::SUCCESS)
}

fn change_cap(
    server: &Server,
    asked: &Limit,
    group: &str,
    Cap(cap): Cap,
) -> Result<ExitCode, Failure> {
    let name = &*asked.name;
    with(server, async |client: &SemaphoreClient| {
        let semaphore = with_existing_limit(client, name)?;
        must_exist(name, &look_at(&semaphore).await?)?;
        let groups = semaphore.inspect_groups().await?;
        let is_known = groups.iter().any(|known| known.name.as_deref() == Some(group));
        if !is_known && groups.len() < MOST_GROUPS {
            // If the name is misspelled, the intended group has not changed.
            note(format_args!("group {group} holds no permit and does not wait: check the name"));
        }
        let changed = match cap {
            Some(cap) => semaphore.set_group_cap(group, cap).await,
            None => semaphore.clear_group_cap(group).await,
        };
        changed.map_err(Failure::of_change)
    })?;
    let json = json!({ "name": name, "group": group, "runtime_cap": cap });
    let text = format!("{}: runtime cap of group {group}: {}", value(name), or_none(cap));
    asked.format.say(json, text)?;
    Ok(ExitCode::SUCCESS)
}

async fn look_at(semaphore: &Semaphore) -> Result<Inspection, Error> {
    // Every page contains the limits, even an empty page.
    semaphore.inspect_range(0..0, 0..0).await
}

/// Changes the limit. If possible, the previous limit is taken from the reply. `before` may be
/// outdated, because other clients may change the limit at the same time.
async fn change_limit<'a>(
    semaphore: &Semaphore,
    name: &'a str,
    change: Change,
    before: &Inspection,
) -> Result<Limits<'a>, Error> {
    let mut limits = Limits::of(name, before);
    let known = limit_of(before);
    let limit_before = match change {
        Change::Set(limit) => {
            let before = semaphore.set_limit(limit).await?;
            limits.runtime_limit = Some(limit);
            known.map(|_| before)
        }
        Change::Add(more) => {
            let now = semaphore.add_permits(more).await?;
            limits.runtime_limit = Some(now);
            known.map(|_| now.saturating_sub(more))
        }
        Change::Clear => {
            let now = semaphore.clear_limit().await?;
            limits.declared_limit = before.declared_limit.map(|_| now);
            limits.runtime_limit = None;
            known
        }
    };
    limits.limit = limits.runtime_limit.or(limits.declared_limit);
    limits.before = Some(Before { limit: limit_before, runtime_limit: before.runtime_limit });
    Ok(limits)
}

impl<'a> Limits<'a> {
    fn of(name: &'a str, now: &Inspection) -> Self {
        let Inspection { declared_limit, runtime_limit, .. } = *now;
        Self { name, limit: limit_of(now), declared_limit, runtime_limit, before: None }
    }

    fn as_text(&self) -> String {
        let source = match (self.runtime_limit, self.declared_limit) {
            (Some(_), declared) => format!(" (runtime limit; declared: {})", or_none(declared)),
            (None, Some(_)) => " (declared)".to_owned(),
            (None, None) => String::new(),
        };
        let limit = or_none(self.limit);
        let name = value(self.name);
        match &self.before {
            None => format!("{name}: limit {limit}{source}"),
            Some(Before { limit: before, .. }) if *before == self.limit => {
                format!("{name}: limit stays {limit}{source}")
            }
            Some(Before { limit: before, .. }) => {
                format!("{name}: limit changed from {} to {limit}{source}", or_none(*before))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_change_is_a_number_an_increment_or_clear() {
        assert_eq!("7".parse(), Ok(Change::Set(7)));
        assert_eq!("+7".parse(), Ok(Change::Add(7)));
        assert_eq!("clear".parse(), Ok(Change::Clear));
        for wrong in ["", "+", "++1", "-1", "7x", "4294967296", "CLEAR"] {
            assert!(wrong.parse::<Change>().is_err(), "{wrong}");
        }
    }
}
