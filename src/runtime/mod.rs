//! Time and the I/O runtime.

mod deadline;
mod home;

pub(crate) use deadline::Deadline;
pub(crate) use home::{Timer, is_current};
