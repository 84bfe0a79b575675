//! Runs asynchronous code inside criterion's closures, which cannot pass an error on.

use tokio::runtime::Runtime;

use super::Result;

/// The runtime of a bench: as many worker threads as there are cores, as `#[tokio::main]` has it.
pub struct Runner(Runtime);

impl Runner {
    pub fn new() -> Result<Self> {
        Ok(Self(Runtime::new()?))
    }

    /// Ends the bench when the work fails.
    pub fn run<T>(&self, work: impl Future<Output = Result<T>>) -> T {
        self.0.block_on(work).unwrap_or_else(|error| panic!("{error}"))
    }
}
