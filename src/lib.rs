//! A fair counting semaphore shared by many processes and machines through Redis.
#![forbid(unsafe_code)]

mod error;
mod registry;

pub use error::Error;
pub use redis;
pub use registry::{Script, ScriptRegistry};
