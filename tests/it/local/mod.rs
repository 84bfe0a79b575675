//! Semaphores without a server: the same as with one, and time as the test wants it.

mod alike;
mod clients;
mod time;
