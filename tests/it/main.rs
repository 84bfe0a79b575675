//! All tests run against real servers. The command is `scripts/with-redis cargo test`. Some folders
//! have the name of the folder of `src/` that they test. The other folders test the protocol
//! (`scripts`, `published`, `model`, `fuzz`), the behavior under faults (`soak`), and the files
//! around the library.

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
mod terms;
mod wakeup;
