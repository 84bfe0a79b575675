//! The groups of a run: the option, and the results of each group.

use redis_semaphore::Group;
use serde::{Deserialize, Serialize};

use crate::group::{LONGEST, group_of};
use crate::identifier::identifier;
use crate::load::messages::{Log, Turn};
use crate::load::summary::Waits;
use crate::number::number;
use crate::table::table;

/// A group, to which some of the tasks belong.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadGroup {
    #[serde(rename = "group")]
    pub name: String,
    pub share: u32,
    pub cap: Option<u32>,
}

/// The permits that the tasks of a group were granted.
#[derive(Debug, Serialize)]
pub struct GroupResult<'a> {
    #[serde(flatten)]
    group: &'a LoadGroup,
    acquires: usize,
    /// The part of all acquires.
    part: f64,
    /// The part of all shares.
    part_by_share: f64,
    wait_us: Option<Waits>,
}

/// Parses NAME, NAME=SHARE or NAME=SHARE:CAP for clap.
pub fn parse(text: &str) -> Result<LoadGroup, String> {
    let (name, numbers) = text.split_once('=').unwrap_or((text, "1"));
    let (share, cap) =
        numbers.split_once(':').map_or((numbers, None), |(share, cap)| (share, Some(cap)));
    let share = number(1..=1000)(share).map_err(|reason| format!("the share {reason}"))?;
    let cap = cap.map(number(1..=u32::MAX)).transpose();
    let cap = cap.map_err(|reason| format!("the cap {reason}"))?;
    let name = identifier(LONGEST)(name).map_err(|reason| format!("the name {reason}"))?;
    Ok(LoadGroup { name, share, cap })
}

impl LoadGroup {
    pub fn group(&self) -> Group {
        group_of(&self.name, self.share, self.cap)
    }

    /// Returns the group as an option.
    pub fn option(&self) -> String {
        let cap = self.cap.map(|cap| format!(":{cap}")).unwrap_or_default();
        format!("{}={}{cap}", self.name, self.share)
    }
}

impl<'a> GroupResult<'a> {
    /// Returns the results of all groups, for permits that `counts`.
    pub fn of_all(
        groups: &'a [LoadGroup],
        logs: &[Log],
        counts: impl Fn(&&Turn) -> bool,
    ) -> Vec<Self> {
        let turns_of = |group: &LoadGroup| {
            let logs = logs.iter().filter(|log| log.group.as_ref() == Some(&group.name));
            logs.flat_map(|log| &log.turns).filter(&counts).copied().collect::<Vec<_>>()
        };
        let turns: Vec<_> = groups.iter().map(turns_of).collect();
        let all: usize = turns.iter().map(Vec::len).sum();
        let shares: u32 = groups.iter().map(|group| group.share).sum();
        let result = |(group, turns): (&'a LoadGroup, &Vec<Turn>)| Self {
            group,
            acquires: turns.len(),
            part: turns.len() as f64 / all.max(1) as f64,
            part_by_share: f64::from(group.share) / f64::from(shares),
            wait_us: Waits::new(turns),
        };
        groups.iter().zip(&turns).map(result).collect()
    }

    pub fn table(groups: &[Self]) -> String {
        let percent = |part: f64| format!("{:.1}%", part * 100.0);
        let row = |result: &Self| {
            let ms = |us: Option<u64>| {
                us.map_or("-".to_owned(), |us| format!("{:.1} ms", us as f64 / 1000.0))
            };
            let waits = result.wait_us.as_ref();
            vec![
                result.group.name.clone(),
                result.group.share.to_string(),
                result.group.cap.map_or("-".to_owned(), |cap| cap.to_string()),
                result.acquires.to_string(),
                percent(result.part),
                percent(result.part_by_share),
                ms(waits.map(|waits| waits.p50)),
                ms(waits.map(|waits| waits.p99)),
                ms(waits.map(|waits| waits.max)),
            ]
        };
        let head = [
            "GROUP",
            "SHARE",
            "CAP",
            "ACQUIRES",
            "PART",
            "BY SHARE",
            "MEDIAN WAIT",
            "99TH",
            "MAXIMUM",
        ];
        table(&head, &groups.iter().map(row).collect::<Vec<_>>())
    }
}
