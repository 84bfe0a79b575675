//! The tool as its users start it, on real servers: `scripts/with-redis cargo test`.

mod doctor;
mod ls;
mod one;
mod server;
mod support;
