//! Runs asynchronous code inside criterion's closures, which cannot return errors.

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
