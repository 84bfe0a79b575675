//! Time and the I/O runtime.

mod deadline;
mod end;
mod home;

pub(crate) use deadline::Deadline;
pub(crate) use end::EndTimer;
pub(crate) use home::{Timer, is_current};
