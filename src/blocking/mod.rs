//! Semaphores for threads, without an async runtime. Requires the feature `blocking`.
//!
//! The API matches the rest of the crate, but calls block the thread. A background thread refreshes
//! permits and receives grant messages. [`SemaphoreClient::connect`] starts this thread. The thread
//! ends when the last handle (see below) is dropped.
//!
//! # The end of a program
//!
//! Dropped permits are released in the background. Dropping the last handle blocks until the
//! releases are delivered, but no longer than twice the response timeout (4 s by default). Handles
//! are [`SemaphoreClient`], [`Semaphore`], [`Permit`], and the values that they create. So no
//! release is lost at the end of `main`, not even after `?` or a panic. On a thread of an async
//! runtime, dropping the last handle does not block.
//!
//! A handle in a `static` is never dropped, and `std::process::exit` drops nothing. But if the main
//! thread has used the client, the end of the main thread waits until the releases are delivered.
//! This applies to Linux with glibc, and to macOS. In the following cases, the program ends without
//! waiting, so call [`SemaphoreClient::shutdown`]:
//!
//! - The program runs on another platform.
//! - `main` is not a Rust function, and the platform is macOS or has no `/proc`.
//! - A thread other than the main thread calls `exit`.
//! - A `thread_local!` of the main thread drops the permit, and was used before the client.
//! - A signal ends the program.
//!
//! # Forked processes
//!
//! In a process that was forked from the connected process, each call returns an
//! [`Error::Invalid`](crate::Error::Invalid) whose `what` is `"process"`. Connect again in the
//! forked process. Do not enable Tokio's features `parking_lot` and `full` in a program that forks:
//! [their locks can hang in a forked process](crate::SemaphoreClient).
//!
//! # Threads of async runtimes
//!
//! A thread of an async runtime must not block: calls return
//! [`Error::Invalid`](crate::Error::Invalid). Inside of `tokio::task::spawn_blocking`, calls work.
//! In three cases, the crate cannot detect the runtime, and Tokio panics:
//!
//! - in a `Drop` while a runtime ends
//! - inside of `tokio::task::unconstrained`
//! - in the future of `Runtime::block_on` after `tokio::task::block_in_place`, until the future has
//!   awaited something
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
mod io_runtime;
mod permit;
mod request;
mod semaphore;
mod shutdown;

pub use acquire_all::{Permits, acquire_all};
pub use builder::SemaphoreBuilder;
pub use client::SemaphoreClient;
pub use permit::Permit;
pub use request::AcquireRequest;
pub use semaphore::Semaphore;
