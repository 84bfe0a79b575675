//! Time and runtimes: where calls are made, and who measures how long they take.

pub(crate) mod clock;
mod deadline;
mod home;

pub(crate) use deadline::Deadline;
pub(crate) use home::{SLACK, Timer, current_runtime, is_current, within};
