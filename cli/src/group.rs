//! The group of a request: its options, and groups as text and as JSON.

use clap::Args;
use redis_semaphore::{Group, GroupInspection};
use serde_json::{Value, json};

use crate::identifier::identifier;
use crate::number::number;
use crate::table::{millis, rounded, table};

/// The longest name of a group.
pub const LONGEST: usize = 64;

#[derive(Debug, Clone, Args)]
pub struct GroupOptions {
    /// Group of the request, such as a tenant: the groups that wait take turns
    #[arg(id = "group", long = "group", value_name = "GROUP", value_parser = identifier(LONGEST))]
    name: Option<String>,
    /// Share of the group, 1 to 1000: what it is granted in proportion to other waiting groups
    #[arg(
        long = "group-share",
        value_name = "N",
        default_value_t = 1,
        requires = "group",
        value_parser = number(1..=1000)
    )]
    share: u32,
    /// Cap of the group: the weight that it may hold at the same time [default: no cap]
    #[arg(
        long = "group-cap",
        value_name = "N",
        requires = "group",
        value_parser = number(1..=u32::MAX)
    )]
    cap: Option<u32>,
}

impl GroupOptions {
    pub fn group(&self) -> Option<Group> {
        Some(group_of(self.name.as_ref()?, self.share, self.cap))
    }
}

/// `share` is at most 1000.
pub fn group_of(name: &str, share: u32, cap: Option<u32>) -> Group {
    let group = Group::new(name).share(share as u16);
    match cap {
        Some(cap) => group.cap(cap),
        None => group,
    }
}

pub fn as_json(group: &GroupInspection) -> Value {
    json!({
        "group": group.name,
        "held": group.held,
        "queued": group.queued,
        "waited_ms": group.waited.map(millis),
        "share": group.share,
        "cap": group.cap,
        "runtime_cap": group.runtime_cap,
    })
}

pub const COLUMNS: [&str; 7] = ["GROUP", "HELD", "QUEUED", "WAITED", "SHARE", "CAP", "RUNTIME CAP"];

pub fn as_table(groups: &[GroupInspection]) -> String {
    table(&COLUMNS, &groups.iter().map(cells).collect::<Vec<_>>())
}

/// Returns the cells of a group's row.
pub fn cells(group: &GroupInspection) -> Vec<String> {
    let shown = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
    vec![
        group.name.clone().unwrap_or_else(|| "(none)".to_owned()),
        group.held.to_string(),
        group.queued.to_string(),
        shown(group.waited.map(rounded)),
        shown(group.share.map(|share| share.to_string())),
        shown(group.cap.map(|cap| cap.to_string())),
        shown(group.runtime_cap.map(|cap| cap.to_string())),
    ]
}
