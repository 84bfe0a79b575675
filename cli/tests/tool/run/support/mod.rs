pub mod pty;
pub mod server;
pub mod tool;
