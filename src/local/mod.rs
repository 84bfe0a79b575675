//! A semaphore as the scripts in `lua/` have it, in memory, for users' tests.
//!
//! The test `model` has the scripts and this code answer thousands of random sequences of calls,
//! and compares them. Two things are the scripts' alone: keys that expire, and bounds for what one
//! call looks at. What time it is, and who listens, is told by whoever calls.

mod acquire;
mod id;
mod inspect;
mod queue;
mod refusal;
mod scripts;
mod semaphore;
mod serve;

pub use inspect::Inspected;
pub use refusal::Refusal;
pub use scripts::Reply;
pub use semaphore::Semaphore;
