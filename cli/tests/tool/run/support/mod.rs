//! What the tests of `run` share.

pub mod pty;
pub mod server;
pub mod tool;
