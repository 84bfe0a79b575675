//! What all benches share: the designs that they compare, the baseline against which they measure, and
//! what the server counts.

// Each bench uses a part of it.
#![allow(dead_code)]

pub mod apart;
pub mod arguments;
pub mod baseline;
pub mod crew;
pub mod design;
pub mod designs;
pub mod figure;
pub mod holders;
pub mod load;
pub mod memory;
pub mod network;
pub mod open_files;
pub mod ours;
pub mod pairs;
pub mod relay;
pub mod report;
pub mod rounds;
pub mod runner;
pub mod scripts;
pub mod server;

/// The result of something that a bench cannot go on without.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
