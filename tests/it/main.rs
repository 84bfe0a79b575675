//! Everything runs against real servers: `scripts/with-redis cargo test`.

mod acknowledge;
mod acquire;
mod cancellation;
mod cluster;
mod cluster_map;
mod connect;
mod credentials;
mod docs;
mod doctor;
mod errors;
mod examples;
mod failover;
mod faults;
mod found;
mod functions;
mod fuzz;
mod lanes;
mod load;
mod lost_replies;
mod memory;
mod migration;
mod model;
mod network;
mod outages;
mod paused;
mod permissions;
mod permits;
mod processes;
mod published;
mod registry;
mod runtimes;
mod scripts;
mod soak;
mod support;
#[cfg(feature = "tls")]
mod tls;
