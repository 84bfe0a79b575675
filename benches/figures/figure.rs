//! One figure: what was measured, against what, and what is to be reached.

use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct Figure {
    pub id: &'static str,
    pub what: &'static str,
    pub unit: &'static str,
    pub floor: f64,
    pub value: f64,
    pub ratio: f64,
    pub target: f64,
    pub met: bool,
}

/// What is better.
pub enum Better {
    AtMost(f64),
    AtLeast(f64),
}

impl Figure {
    /// A figure whose ratio to the floor has a target.
    pub fn new(
        id: &'static str,
        what: &'static str,
        unit: &'static str,
        (floor, value): (f64, f64),
        ratio: f64,
        better: Better,
    ) -> Self {
        let (target, met) = match better {
            Better::AtMost(target) => (target, ratio <= target),
            Better::AtLeast(target) => (target, ratio >= target),
        };
        Self { id, what, unit, floor, value, ratio, target, met }
    }
}

pub fn table(figures: &[Figure]) -> String {
    let mut table = format!(
        "{:<4} {:<52} {:>10} {:>10} {:<8} {:>6} {:>7}\n",
        "", "", "floor", "value", "", "ratio", "target"
    );
    for figure in figures {
        let Figure { id, what, unit, floor, value, ratio, target, met } = figure;
        let verdict = if *met { "met" } else { "NOT MET" };
        table += &format!(
            "{id:<4} {what:<52} {floor:>10.1} {value:>10.1} {unit:<8} {ratio:>6.2} {target:>7.2} {verdict}\n"
        );
    }
    table
}
