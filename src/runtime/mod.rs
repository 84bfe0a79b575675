//! Time and runtimes: where calls are made, and who measures how long they take.

pub(crate) mod clock;
mod home;

pub(crate) use home::{Timer, Watch, current_runtime, is_current};
