//! The result of a test run, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::checker::Violation;
use super::history::{Event, Moment, What};

/// The result as JSON, without the totals.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    seed: u64,
    topologies: Vec<String>,
    seconds: f64,
    operations_by_kind: BTreeMap<String, u64>,
    faults_by_kind: BTreeMap<String, u64>,
    slowest_recovery_ms: BTreeMap<String, u64>,
    /// Each text contains the topology, the time in s since the beginning, the violated rule, and
    /// the details.
    pub violation_texts: Vec<String>,
}

impl Report {
    pub fn new(topology: &str, seed: u64, events: &[Event], violations: &[Violation]) -> Self {
        let mut operations: BTreeMap<String, u64> = BTreeMap::new();
        let mut faults: BTreeMap<String, u64> = BTreeMap::new();
        let mut recoveries: BTreeMap<String, u64> = BTreeMap::new();
        let mut undone = 0;
        for Event { at, what, .. } in events {
            if let Some(operation) = operation(what) {
                *operations.entry(operation).or_default() += 1;
            }
            match what {
                What::Fault { kind, .. } => *faults.entry(kind.clone()).or_default() += 1,
                What::Undone { .. } => undone = *at,
                What::Healed { kind } => {
                    let slowest = recoveries.entry(kind.clone()).or_default();
                    *slowest = (*slowest).max((at - undone) / 1_000_000);
                }
                _ => {}
            }
        }
        let began = events.first().map_or(0, |event| event.at);
        let ended = events.last().map_or(0, |event| event.at);
        let text = |Violation { rule, at, what }: &Violation| {
            format!("{topology}, {:.3} s: {rule}: {what}", seconds(at - began.min(*at)))
        };
        Self {
            seed,
            topologies: vec![topology.to_owned()],
            seconds: seconds(ended - began).round(),
            operations_by_kind: operations,
            faults_by_kind: faults,
            slowest_recovery_ms: recoveries,
            violation_texts: violations.iter().map(text).collect(),
        }
    }

    /// Reads the result of earlier test runs in other topologies.
    pub fn read(path: &Path) -> Self {
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    /// Combines both results.
    pub fn after(self, mut earlier: Self) -> Self {
        earlier.topologies.extend(self.topologies);
        earlier.seconds += self.seconds;
        let add = |sums: &mut BTreeMap<String, u64>, more: BTreeMap<String, u64>| {
            more.into_iter().for_each(|(kind, times)| *sums.entry(kind).or_default() += times);
        };
        add(&mut earlier.operations_by_kind, self.operations_by_kind);
        add(&mut earlier.faults_by_kind, self.faults_by_kind);
        for (kind, slowest) in self.slowest_recovery_ms {
            let slowest_yet = earlier.slowest_recovery_ms.entry(kind).or_default();
            *slowest_yet = slowest.max(*slowest_yet);
        }
        earlier.violation_texts.extend(self.violation_texts);
        earlier
    }

    fn totals(&self) -> (u64, u64) {
        (self.operations_by_kind.values().sum(), self.faults_by_kind.values().sum())
    }

    /// Returns the result as one line.
    pub fn json(&self) -> String {
        let mut report = serde_json::to_value(self).unwrap();
        let (operations, faults) = self.totals();
        report["operations"] = operations.into();
        report["faults"] = faults.into();
        report["violations"] = self.violation_texts.len().into();
        format!("{report}\n")
    }
}

fn seconds(time: Moment) -> f64 {
    time as f64 / 1e9
}

/// Returns the name of a call or a fault, if this event is its beginning or its only event.
fn operation(what: &What) -> Option<String> {
    Some(match what {
        What::Asks { call, .. } => name(call),
        What::Releases { how, .. } => name(how),
        What::Refreshed { by_hand: true, .. } => "refresh".to_owned(),
        What::Refreshed { .. } => "automatic refresh".to_owned(),
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
        let Self { seed, seconds, .. } = self;
        let topologies = self.topologies.join(", ");
        writeln!(f, "\n{topologies}, seed {seed}, {seconds} s: {operations} operations")?;
        for (operation, times) in &self.operations_by_kind {
            writeln!(f, "{times:8} {operation}")?;
        }
        writeln!(f, "{faults} faults, and how long it took at most until all worked again")?;
        for (fault, times) in &self.faults_by_kind {
            let slowest = self.slowest_recovery_ms.get(fault).map_or(0.0, |ms| *ms as f64 / 1e3);
            writeln!(f, "{times:8} {fault:18} {slowest:6.2} s")?;
        }
        write!(f, "{} violations", self.violation_texts.len())?;
        self.violation_texts.iter().try_for_each(|text| write!(f, "\n  {text}"))
    }
}
