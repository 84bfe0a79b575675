//! A fair counting semaphore shared by many processes and machines through Redis.
//!
//! A [`Semaphore`] limits how many tasks run at the same time, across processes and machines. Use a
//! semaphore to protect something with limited capacity: a database, a partner's API, software
//! licenses, jobs that need a lot of memory.
//!
//! Permits are granted in order of arrival. Waiters do not poll: the script that frees a permit
//! grants it to the next waiter and notifies that waiter's process. If a holder crashes, its permit
//! is freed when its lease (default 30 s) expires. Leases expire by the server's clock, so wrong
//! clocks on other machines do no harm.
//!
//! ```
//! use redis_semaphore::SemaphoreClient;
//!
//! #[tokio::main]
//! async fn main() -> Result<(), redis_semaphore::Error> {
//!     let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1/".to_owned());
//!     let client = SemaphoreClient::connect(&url).await?;
//!     let semaphore = client.semaphore("database-connections").limit(3).build()?;
//!
//!     let permit = semaphore.acquire().await?;
//!     println!("one of three: {}", permit.id());
//!     permit.release().await?;
//!
//!     client.shutdown().await; // Delivers the releases of dropped permits.
//!     Ok(())
//! }
//! ```
//!
//! - [`SemaphoreClient`] is the connection to Redis. Each process needs one client.
//! - [`Semaphore`] acquires permits, shows holders and waiters, and changes the limit.
//! - [`Permit`] has a lease that is refreshed in the background. A permit can be
//!   [lost](Permit::lost).
//! - [`acquire_all`] acquires permits of several semaphores.
//! - [`Error`] describes what failed, and names the semaphore.
//! - [`SemaphoreClient::doctor`] checks the server for conditions that endanger semaphores.
//! - [`ScriptRegistry`] embeds, loads and runs Lua scripts: this crate's scripts and your own.
//!
//! # When not to use this crate
//!
//! - **All tasks run in one process.** Use `tokio::sync::Semaphore`.
//! - **The limit must hold even through a failover.** Redis replicates asynchronously. A promoted
//!   replica, or a server that restarts without its data, can grant more permits than the limit.
//! - **A crashed holder must be replaced within milliseconds.** The crashed holder's permit stays
//!   taken until the lease expires.
//! - **Work is shorter than a network round trip.** A local limit in each process is faster.
//! - **You need Redlock or read-write locks.** `docs/comparison.md` lists alternatives.
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `sentinel` | on | connections to the primary that Redis Sentinel names |
//! | `tls` | off | `rediss://` URLs and `SemaphoreClientBuilder::certificates` |
//! | `blocking` | off | the module `blocking`: the same API for threads |
//! | `local` | off | `SemaphoreClient::local`: semaphores in memory, for tests |
//! | `metrics` | off | counters, times and gauges for the crate `metrics` |
//! | `tower` | off | the module `tower`: a layer for HTTP services |
//!
//! # Documentation
//!
//! The repository has these pages:
//!
//! - `docs/concepts.md` defines the terms and shows the life of a permit.
//! - `docs/guarantees.md` states what is guaranteed and what is not.
//! - `docs/failure-modes.md` describes each fault and the time to recover.
//! - `docs/production.md` lists what to check before going live, and explains the settings.
//! - `docs/troubleshooting.md` lists errors and log messages, with causes and fixes.
//! - `docs/metrics.md` lists the metrics.
//! - `docs/protocol.md` describes the scripts, for clients in other languages.
//!
//! # Re-exports and logs
//!
//! The crates [`redis`] and [`include_dir`] are re-exported, because their types are part of this
//! crate's API. `redis_semaphore::redis` is the version that this crate uses. Import this crate's
//! items by name. A glob import (`use redis_semaphore::*`) also imports the names `redis` and
//! `include_dir`. These names then hide your program's own dependencies with the same names.
//!
//! Logs are written with [`tracing`]. The level is `warn` for problems, such as lost permits,
//! outages of Redis and differing limits. The level is `info` for the end of an outage, and `debug`
//! for spans, single grants and single failed attempts.
#![forbid(unsafe_code)]
// Makes docs.rs show the feature that an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

// Layers, lowest first. `tests/it/layers` checks that each layer uses only earlier layers:
// lock, runtime, error, metrics, scripts, protocol, local, releases, server, wakeup, diagnosis,
// context, semaphore, client, blocking, tower
#[cfg(feature = "blocking")]
pub mod blocking;
mod client;
mod context;
mod diagnosis;
mod error;
#[cfg(feature = "local")]
#[doc(hidden)] // public only for the test that compares this module with the scripts
pub mod local;
mod lock;
mod metrics;
mod protocol;
mod releases;
mod runtime;
mod scripts;
mod semaphore;
mod server;
#[cfg(feature = "tower")]
pub mod tower;
mod wakeup;

pub use client::{Names, SemaphoreClient, SemaphoreClientBuilder};
pub use diagnosis::{Check, Diagnosis, ServerReport, Verdict};
pub use error::{ConnectErrorKind, Error};
/// The crate include_dir. Its type `Dir` is the argument of [`ScriptRegistry::from_dir`].
#[doc(no_inline)]
pub use include_dir;
pub use protocol::{GroupInspection, Holder, Inspection, Waiter};
/// The crate redis, in the version whose types are part of this crate's API. Import items from
/// `redis_semaphore::redis`.
#[doc(no_inline)]
pub use redis;
pub use scripts::{Script, ScriptRegistry};
pub use semaphore::{
    AcquireRequest, DetachedPermit, Group, Permit, PermitWatch, Permits, Revoked, Semaphore,
    SemaphoreBuilder, acquire_all,
};
pub use server::{Credentials, IntoServer};

/// Runs the programs in the README as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Runs the programs in the guide as tests.
#[cfg(all(doctest, feature = "blocking", feature = "tower"))]
#[doc = include_str!("../docs/guide.md")]
struct Guide;

/// Runs the programs in the migration page as tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/migrating.md")]
struct Migrating;
