//! Time and the I/O runtime.

mod deadline;
mod end;
mod io_runtime;

pub(crate) use deadline::Deadline;
pub(crate) use end::EndTimer;
pub(crate) use io_runtime::{Interruption, is_current, until};

use tokio::time::{Instant, sleep_until};

/// Waits until this moment, or forever if it is `None`.
pub(crate) async fn reached(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
