//! A fair counting semaphore shared by many processes and machines through Redis.
//!
//! A [`Semaphore`] lets a limited number in at once, wherever they run. Whoever asks first is
//! served first. Nobody polls: the permit is handed to the next waiter by the same script
//! that frees it, and that one process is told. A holder that crashes blocks its permit until its
//! lease ends, by the server's clock: what other machines' clocks say does not count.
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
//!     client.shutdown().await; // Before the end of a program: delivers what was dropped.
//!     Ok(())
//! }
//! ```
//!
//! - [`SemaphoreClient`] is the connection: one for a process.
//! - [`Semaphore`] acquires, inspects, and changes the limit.
//! - [`Permit`] is what a holder has. It is leased, renewed in the background, and can be
//!   [lost](Permit::lost): code that must not go on without it races with that.
//! - [`acquire_all`] acquires of several semaphores at once.
//! - [`Error`] says what went wrong, with which semaphore.
//! - [`SemaphoreClient::doctor`] says what endangers semaphores on the server.
//! - [`ScriptRegistry`] embeds, loads and runs Lua scripts: those of this crate, and yours.
//!
//! The scripts are a protocol of their own, for clients in any language. It is described, with what
//! is guaranteed and what is not, in the folder `docs` of the repository.
//!
//! The feature `tls` (default: off) is for connections over TLS, by `rediss://` URLs and
//! `SemaphoreClientBuilder::certificates`. It installs no provider of rustls for the program.
//!
//! The feature `blocking` (default: off) has the same for threads: the module `blocking`.
//!
//! The feature `local` (default: off) has semaphores in memory, for tests of what uses them:
//! `SemaphoreClient::local`.
//!
//! The feature `metrics` (default: off) counts what this process does, for the facade crate
//! of that name: `docs/metrics.md` has the list.
//!
//! The feature `tower` (default: off) has a layer for HTTP services: the module `tower`.
//!
//! The crates [`redis`] and [`include_dir`], whose types are part of this crate's API, are
//! re-exported: `redis_semaphore::redis` is the version that matches. Import items by name. A glob
//! (`use redis_semaphore::*`) imports the two names as well, and they hide crates of these names
//! that your program depends on.
//!
//! Logs are written with [`tracing`]: warnings for a lost permit, a lost connection and differing
//! limits, `info` when a connection is back; spans and single grants at `debug`.
#![forbid(unsafe_code)]
// docs.rs shows the feature that an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

// Layers, the lowest first. Each uses only those before it, which `tests/it/layers` checks:
// runtime, error, metrics, scripts, protocol, local, server, wakeup, batching, releases, diagnosis,
// context, semaphore, client, blocking, tower
mod batching;
#[cfg(feature = "blocking")]
pub mod blocking;
mod client;
mod context;
mod diagnosis;
mod error;
#[cfg(feature = "local")]
#[doc(hidden)] // but to the test that compares it with the scripts
pub mod local;
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
/// The crate whose `Dir` [`ScriptRegistry::from_dir`] reads.
#[doc(no_inline)]
pub use include_dir;
pub use protocol::{Holder, Inspection, Waiter};
/// The crate redis, in the version whose types are part of this crate's API. Write
/// `redis_semaphore::redis`.
#[doc(no_inline)]
pub use redis;
pub use scripts::{Script, ScriptRegistry};
pub use semaphore::{
    AcquireRequest, DetachedPermit, Permit, PermitWatch, Permits, Revoked, Semaphore,
    SemaphoreBuilder, acquire_all,
};
pub use server::{Credentials, IntoServer};

/// The programs in the README are run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// So are those of the guide, where the features are on that it tells of.
#[cfg(all(doctest, feature = "blocking", feature = "tower"))]
#[doc = include_str!("../docs/guide.md")]
struct Guide;

/// So is what stands here.
#[cfg(doctest)]
#[doc = include_str!("../docs/migrating.md")]
struct Migrating;
