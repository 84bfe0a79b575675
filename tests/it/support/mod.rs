//! What the tests share: servers of their own, their clocks, faults on the way to them, and ways to
//! call the scripts.

pub mod clock;
pub mod contents;
pub mod observer;
pub mod proxy;
pub mod scripts;
pub mod server;
