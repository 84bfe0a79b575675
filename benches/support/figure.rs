//! A figure: a measured value, the value that it is compared with, and its target.

use serde::Serialize;
use serde_json::Value;

use super::Result;
use super::rounds::Rounds;

#[derive(Debug, Serialize)]
pub struct Figure {
    pub id: &'static str,
    pub what: String,
    pub unit: &'static str,
    pub baseline: f64,
    pub value: f64,
    pub ratio: f64,
    pub target: Option<f64>,
    pub met: Option<bool>,
    /// More numbers, for plots and tables.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub details: Value,
}

impl Figure {
    /// Creates a figure without a target.
    pub fn new(
        id: &'static str,
        what: impl Into<String>,
        unit: &'static str,
        (baseline, value): (f64, f64),
    ) -> Self {
        let (what, ratio) = (what.into(), value / baseline);
        Self {
            id,
            what,
            unit,
            baseline,
            value,
            ratio,
            target: None,
            met: None,
            details: Value::Null,
        }
    }

    /// Creates a figure from the medians of rounds.
    pub fn of(
        id: &'static str,
        what: impl Into<String>,
        unit: &'static str,
        rounds: &Rounds,
    ) -> Self {
        let (medians, ratio) = rounds.medians();
        Self { ratio, ..Self::new(id, what, unit, medians) }
    }

    pub fn ratio_at_most(self, target: f64) -> Self {
        let met = self.ratio <= target;
        self.with_target(target, met)
    }

    pub fn ratio_at_least(self, target: f64) -> Self {
        let met = self.ratio >= target;
        self.with_target(target, met)
    }

    /// Sets a target in the unit of the value.
    pub fn value_at_most(self, target: f64) -> Self {
        let met = self.value <= target;
        self.with_target(target, met)
    }

    fn with_target(self, target: f64, met: bool) -> Self {
        Self { target: Some(target), met: Some(met), ..self }
    }

    pub fn with_details(self, details: impl Serialize) -> Result<Self> {
        Ok(Self { details: serde_json::to_value(details)?, ..self })
    }
}

/// Prints one line of JSON, or a table without the details.
pub fn print(figures: &[Figure], as_json: bool) -> Result<()> {
    if as_json {
        println!("{}", serde_json::to_string(figures)?);
        return Ok(());
    }
    println!(
        "{:<4} {:<52} {:>10} {:>10} {:<8} {:>6} {:>7}",
        "", "", "baseline", "value", "", "ratio", "target"
    );
    for Figure { id, what, unit, baseline, value, ratio, target, met, .. } in figures {
        let target = target.map_or(String::new(), |target| format!("{target:.2}"));
        let verdict = met.map_or("", |met| if met { "met" } else { "NOT MET" });
        println!(
            "{id:<4} {what:<52} {baseline:>10.1} {value:>10.1} {unit:<8} {ratio:>6.2} {target:>7} \
             {verdict}"
        );
    }
    Ok(())
}
