//! Shared code of the benches: the designs that they compare, the baseline, and the server's
//! statistics.

// Each bench uses only a part of this module.
#![allow(dead_code)]

pub mod arguments;
pub mod baseline;
pub mod course;
pub mod crew;
pub mod design;
pub mod designs;
pub mod figure;
pub mod line;
pub mod open_files;
pub mod ours;
pub mod pairs;
pub mod relay;
pub mod rounds;
pub mod runner;
pub mod rush;
pub mod scripts;
pub mod server;

/// The result of an operation without which a bench cannot continue.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
