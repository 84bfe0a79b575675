//! Semaphores in memory behave like semaphores on a server, and the test controls the time.

mod alike;
mod clients;
mod time;
