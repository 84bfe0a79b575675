//! Time and the I/O runtime.

mod deadline;
mod end;
mod io_runtime;

pub(crate) use deadline::Deadline;
pub(crate) use end::EndTimer;
pub(crate) use io_runtime::{Timer, is_current};
