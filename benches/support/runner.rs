//! Criterion, and a runtime for asynchronous code in Criterion's closures. The closures cannot
//! return errors.

use std::time::Duration;

use criterion::Criterion;
use tokio::runtime::Runtime;

use super::Result;

/// The runtime of a bench, with one worker thread for each core, like `#[tokio::main]`.
pub struct Runner(Runtime);

impl Runner {
    pub fn new() -> Result<Self> {
        Ok(Self(Runtime::new()?))
    }

    /// Runs the work. An error ends the bench.
    pub fn run<T>(&self, work: impl Future<Output = Result<T>>) -> T {
        self.0.block_on(work).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// Each point takes only about three seconds, because many points are more useful than many digits.
pub fn criterion() -> Criterion {
    Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .nresamples(5_000)
        .configure_from_args()
}
