//! A fair counting semaphore shared by many processes and machines through Redis.
#![forbid(unsafe_code)]

mod acquire;
mod calls;
mod claim;
mod client;
mod connect;
mod error;
mod gate;
mod inspection;
mod keys;
mod lease;
mod link;
mod permit;
mod registry;
mod semaphore;
mod semaphore_builder;
mod semaphores;
mod semaphores_builder;
mod wakeups;
mod worker;

pub use error::Error;
pub use inspection::{Holder, Inspection, Waiter};
pub use permit::Permit;
pub use redis;
pub use registry::{Script, ScriptRegistry};
pub use semaphore::Semaphore;
pub use semaphore_builder::SemaphoreBuilder;
pub use semaphores::Semaphores;
pub use semaphores_builder::SemaphoresBuilder;
