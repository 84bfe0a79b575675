//! Everything runs against real servers: `scripts/with-redis cargo test`.

mod acquire;
mod cancellation;
mod connect;
mod faults;
mod found;
mod fuzz;
mod lanes;
mod load;
mod lost_replies;
mod memory;
mod model;
mod permits;
mod processes;
mod registry;
mod scripts;
mod soak;
mod support;
