//! What the tests share: servers of their own, their clocks, and ways to call the scripts.

mod clock;
pub mod scripts;
pub mod server;
