//! Semaphores in memory: they behave like those on a server, and the test controls the time.

mod alike;
mod clients;
mod time;
