//! What a campaign comes to, for people and for programs.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::checker::Violation;
use super::history::{Event, Moment, What};

#[derive(Debug)]
pub struct Report {
    seed: u64,
    operations: BTreeMap<String, u64>,
    /// How often, and the slowest recovery from it.
    faults: BTreeMap<String, (u64, Moment)>,
    began: Moment,
    ended: Moment,
    pub violations: Vec<Violation>,
}

impl Report {
    pub fn new(seed: u64, events: &[Event], violations: Vec<Violation>) -> Self {
        let mut operations: BTreeMap<String, u64> = BTreeMap::new();
        let mut faults: BTreeMap<String, (u64, Moment)> = BTreeMap::new();
        let mut undone = 0;
        for Event { at, what, .. } in events {
            if let Some(operation) = operation(what) {
                *operations.entry(operation).or_default() += 1;
            }
            match what {
                What::Fault { kind, .. } => faults.entry(kind.clone()).or_default().0 += 1,
                What::Undone { .. } => undone = *at,
                What::Healed { kind } => {
                    let (_, slowest) = faults.entry(kind.clone()).or_default();
                    *slowest = (*slowest).max(at - undone);
                }
                _ => {}
            }
        }
        let began = events.first().map_or(0, |event| event.at);
        let ended = events.last().map_or(0, |event| event.at);
        Self { seed, operations, faults, began, ended, violations }
    }

    fn totals(&self) -> (u64, u64) {
        (self.operations.values().sum(), self.faults.values().map(|(times, _)| times).sum())
    }

    /// When it was, in s since the beginning, which rule was broken, and how.
    fn texts(&self) -> Vec<String> {
        let text = |Violation { rule, at, what }: &Violation| {
            format!("{:.3} s: {rule}: {what}", seconds(at - self.began.min(*at)))
        };
        self.violations.iter().map(text).collect()
    }

    /// One line.
    pub fn json(&self) -> String {
        let (operations, faults) = self.totals();
        let milliseconds = |slowest: Moment| slowest / 1_000_000;
        let by_kind = self.faults.iter();
        let report = serde_json::json!({
            "seed": self.seed,
            "seconds": seconds(self.ended - self.began).round(),
            "operations": operations,
            "operations_by_kind": self.operations,
            "faults": faults,
            "faults_by_kind":
                by_kind.clone().map(|(kind, (times, _))| (kind, times)).collect::<BTreeMap<_, _>>(),
            "slowest_recovery_ms":
                by_kind.map(|(kind, (_, slowest))| (kind, milliseconds(*slowest)))
                    .collect::<BTreeMap<_, _>>(),
            "violations": self.violations.len(),
            "violation_texts": self.texts(),
        });
        format!("{report}\n")
    }
}

fn seconds(time: Moment) -> f64 {
    time as f64 / 1e9
}

/// What a client or the nemesis called, where this is the beginning of it or all that is told.
fn operation(what: &What) -> Option<String> {
    Some(match what {
        What::Asks { call, .. } => name(call),
        What::Releases { how, .. } => name(how),
        What::Renewed { by_hand: true, .. } => "refresh".to_owned(),
        What::Renewed { .. } => "renewal".to_owned(),
        What::SetsLimit { .. } => "set_limit".to_owned(),
        _ => return None,
    })
}

fn name(kind: &impl Serialize) -> String {
    match serde_json::to_value(kind) {
        Ok(serde_json::Value::String(name)) => name,
        other => unreachable!("{other:?} is no name"),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (operations, faults) = self.totals();
        let time = seconds(self.ended - self.began);
        writeln!(f, "\nseed {}, {time:.0} s: {operations} operations", self.seed)?;
        for (operation, times) in &self.operations {
            writeln!(f, "{times:8} {operation}")?;
        }
        writeln!(f, "{faults} faults, and how long it took at most until all worked again")?;
        for (fault, (times, slowest)) in &self.faults {
            writeln!(f, "{times:8} {fault:18} {:6.2} s", seconds(*slowest))?;
        }
        write!(f, "{} violations", self.violations.len())?;
        self.texts().iter().try_for_each(|text| write!(f, "\n  {text}"))
    }
}
