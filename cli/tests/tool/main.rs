//! The tool as its users start it, on real servers: `scripts/with-redis cargo test`.

mod demo;
mod doctor;
mod ls;
mod one;
mod output;
mod server;
mod support;
