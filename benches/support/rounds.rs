//! Rounds, and the medians of samples and of rounds.

use std::time::Duration;

use super::arguments::only_tests;

/// Returns the number of rounds, which is one in a test.
pub fn rounds_of(many: usize) -> usize {
    if only_tests() { 1 } else { many }
}

/// Returns the length of a round or a rest, which is zero in a test.
pub fn length_of(measured: Duration) -> Duration {
    if only_tests() { Duration::ZERO } else { measured }
}

pub fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    let middle = samples.len() / 2;
    match samples.len() % 2 {
        0 => (samples[middle - 1] + samples[middle]) / 2.0,
        _ => samples[middle],
    }
}

pub fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// The baseline and the value of each round.
#[derive(Default)]
pub struct Rounds(Vec<(f64, f64)>);

impl Rounds {
    pub fn add(&mut self, (baseline, value): (f64, f64)) {
        self.0.push((baseline, value));
    }

    /// Returns the median baseline and value, and the median of the rounds' ratios.
    pub fn medians(&self) -> ((f64, f64), f64) {
        let of =
            |what: fn(&(f64, f64)) -> f64| median(&mut self.0.iter().map(what).collect::<Vec<_>>());
        ((of(|round| round.0), of(|round| round.1)), of(|round| round.1 / round.0))
    }
}
