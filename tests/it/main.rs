//! Everything runs against real servers: `scripts/with-redis cargo test`.

mod support;

mod acquire;
mod cancellation;
mod connect;
mod model;
mod permits;
