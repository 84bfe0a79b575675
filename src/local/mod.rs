//! A semaphore in memory that works like the scripts in `lua/`, for users' tests.
//!
//! The test `model` sends thousands of random sequences of calls to the scripts and to this code,
//! and compares the replies. Two things exist only in the scripts: keys that expire, and bounds for
//! the work of one call. The caller provides the time and the set of subscribed clients.

mod acquire;
mod groups;
mod id;
mod inspect;
mod queue;
mod refusal;
mod scripts;
mod semaphore;
mod serve;
mod turns;

pub use inspect::{Inspected, InspectedGroups};
pub use refusal::Refusal;
pub use scripts::Reply;
pub use semaphore::Semaphore;
pub use turns::Turns;
