//! Everything runs against real servers: `scripts/with-redis cargo test`. Folders are named as
//! those of `src/` that they test. Besides: the protocol by itself (`scripts`, `published`,
//! `model`, `fuzz`), all of it under faults (`soak`), and what surrounds it.

mod batching;
mod blocking;
mod client;
mod diagnosis;
mod docs;
mod error;
mod examples;
mod fuzz;
mod layers;
mod local;
mod logs;
mod memory;
mod metrics;
mod model;
mod published;
mod registry;
mod runtime;
mod scripts;
mod semaphore;
mod server;
mod soak;
mod wakeup;
