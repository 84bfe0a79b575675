//! What all benches share: the floor against which they measure, and what the server counts.

pub mod floor;
pub mod server;

/// The result of something that a bench cannot go on without.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
