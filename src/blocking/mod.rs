//! Semaphores for threads, without a runtime of one's own. Feature `blocking`.
//!
//! The same as the rest of the crate, but that calls wait in place. A thread in the background does
//! what a runtime would: it renews permits, and hears of wake-ups. [`SemaphoreClient::connect`]
//! starts it, and it ends when nothing is left that needs it.
//!
//! # The end of a program
//!
//! Permits that are dropped are given back in the background. The drop of the last handle (of
//! [`SemaphoreClient`], [`Semaphore`], [`Permit`] and what they make) waits until that is done, for
//! up to twice the response timeout (default 4 s). So the end of `main` loses none of them, also
//! after `?` or a panic. A handle in a `static` is never dropped, and `std::process::exit` drops
//! nothing. There the end of the main thread waits, if that thread has used the client: on Linux
//! with glibc, and on macOS. Elsewhere, before `exit` on another thread, and in a program that a
//! signal ends, call [`SemaphoreClient::shutdown`]. On a thread of an async runtime the drop does
//! not wait.
//!
//! In a process that was forked from the one that connected, each call is an
//! [`Error::Invalid`](crate::Error::Invalid) whose `what` is `"process"`: connect again there.
//!
//! # Threads of async runtimes
//!
//! Whoever waits here waits with a thread, so a thread of an async runtime must not: what waits is
//! an [`Error::Invalid`](crate::Error::Invalid) there. In `tokio::task::spawn_blocking` it works.
//! (Where that cannot be told, tokio panics: in a `Drop` while a runtime ends, and inside of
//! `tokio::task::unconstrained`.)
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
