//! Everything runs against real servers: `scripts/with-redis cargo test`.

mod acquire;
mod cancellation;
mod connect;
mod doctor;
mod faults;
mod found;
mod lanes;
mod load;
mod lost_replies;
mod model;
mod permissions;
mod permits;
mod processes;
mod registry;
mod scripts;
mod soak;
mod support;
#[cfg(feature = "tls")]
mod tls;
