//! Semaphores for threads, without an async runtime. Requires the feature `blocking`.
//!
//! The API matches the rest of the crate, but calls block the thread. A background thread refreshes
//! permits and receives grant messages. [`SemaphoreClient::connect`] starts the thread. It ends
//! when no handle is left.
//!
//! # The end of a program
//!
//! Dropped permits are released in the background. The drop of the last handle waits until that is
//! done, for up to twice the response timeout (default 4 s). Handles are [`SemaphoreClient`],
//! [`Semaphore`], [`Permit`], and the values that they create. So the end of `main` loses no
//! release, not even after `?` or a panic. On a thread of an async runtime, the drop does not wait.
//!
//! A handle in a `static` is never dropped, and `std::process::exit` drops nothing. If the main
//! thread has used the client, its end then waits instead: on Linux with glibc, and on macOS. Call
//! [`SemaphoreClient::shutdown`] in these cases:
//!
//! - on other platforms
//! - before `exit` on another thread
//! - in a program that is ended by a signal
//!
//! # Forked processes
//!
//! In a process that was forked from the connected process, each call returns an
//! [`Error::Invalid`](crate::Error::Invalid) whose `what` is `"process"`. Connect again there.
//!
//! # Threads of async runtimes
//!
//! These calls block the thread, and a thread of an async runtime must not block. There, blocking
//! calls return [`Error::Invalid`](crate::Error::Invalid). They work inside of
//! `tokio::task::spawn_blocking`. In two places, the crate cannot detect the runtime, and Tokio
//! panics: in a `Drop` while a runtime ends, and inside of `tokio::task::unconstrained`.
//!
//! # Examples
//!
//! ```
//! use redis_semaphore::blocking::SemaphoreClient;
//!
//! fn main() -> Result<(), redis_semaphore::Error> {
//!     let client = SemaphoreClient::connect(&std::env::var("REDIS_URL").unwrap())?;
//!     let semaphore = client.semaphore("database-connections").limit(3).build()?;
//!
//!     let permit = semaphore.acquire()?;
//!     println!("one of three: {}", permit.id());
//!     permit.release()?;
//!
//!     client.shutdown()
//! }
//! ```

mod acquire_all;
mod builder;
mod client;
mod ending;
mod home;
mod permit;
mod request;
mod semaphore;

pub use acquire_all::{Permits, acquire_all};
pub use builder::SemaphoreBuilder;
pub use client::SemaphoreClient;
pub use permit::Permit;
pub use request::AcquireRequest;
pub use semaphore::Semaphore;
