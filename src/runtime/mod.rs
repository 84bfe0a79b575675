//! Time and runtimes: the I/O runtime, deadlines and clocks.

pub(crate) mod clock;
mod deadline;
mod home;

pub(crate) use deadline::Deadline;
pub(crate) use home::{SLACK, Timer, current_runtime, is_current, within};
