//! Shared code of tests and benches: private servers, their clocks, network faults, and calls of
//! the scripts.

pub mod acl;
pub mod child;
pub mod clock;
pub mod cluster;
pub mod contents;
pub mod delay;
pub mod errors;
pub mod example;
pub mod folder;
pub mod head;
pub mod listener;
pub mod observer;
pub mod preload;
pub mod proxy;
pub mod replicated;
pub mod scripts;
pub mod server;
pub mod tls;
