//! Tests that semaphores in memory behave like semaphores on a server. The tests control the time.

mod alike;
mod clients;
mod time;
