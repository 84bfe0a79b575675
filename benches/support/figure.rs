//! A figure: a measured value, the value that it is compared with, and its target.

use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct Figure {
    pub id: &'static str,
    pub what: &'static str,
    pub unit: &'static str,
    pub baseline: f64,
    pub value: f64,
    pub ratio: f64,
    pub target: f64,
    pub met: bool,
}

pub enum Better {
    AtMost(f64),
    AtLeast(f64),
}

impl Better {
    /// Returns the target, and whether it is met.
    fn judge(self, measured: f64) -> (f64, bool) {
        match self {
            Self::AtMost(target) => (target, measured <= target),
            Self::AtLeast(target) => (target, measured >= target),
        }
    }
}

impl Figure {
    /// Creates a figure whose ratio has a target.
    pub fn new(
        id: &'static str,
        what: &'static str,
        unit: &'static str,
        (baseline, value): (f64, f64),
        ratio: f64,
        better: Better,
    ) -> Self {
        let (target, met) = better.judge(ratio);
        Self { id, what, unit, baseline, value, ratio, target, met }
    }

    /// Creates a figure whose value has a target, in its own unit.
    pub fn of_value(
        id: &'static str,
        what: &'static str,
        unit: &'static str,
        (baseline, value): (f64, f64),
        better: Better,
    ) -> Self {
        let (target, met) = better.judge(value);
        Self { id, what, unit, baseline, value, ratio: value / baseline, target, met }
    }
}

pub fn table(figures: &[Figure]) -> String {
    let mut table = format!(
        "{:<4} {:<52} {:>10} {:>10} {:<8} {:>6} {:>7}\n",
        "", "", "baseline", "value", "", "ratio", "target"
    );
    for figure in figures {
        let Figure { id, what, unit, baseline, value, ratio, target, met } = figure;
        let verdict = if *met { "met" } else { "NOT MET" };
        table += &format!(
            "{id:<4} {what:<52} {baseline:>10.1} {value:>10.1} {unit:<8} {ratio:>6.2} {target:>7.2} {verdict}\n"
        );
    }
    table
}
