//! Time and the I/O runtime.

mod deadline;
mod end;
mod io_runtime;

pub(crate) use deadline::Deadline;
pub(crate) use end::EndTimer;
pub(crate) use io_runtime::{Interruption, is_current, until};

use std::future::poll_fn;
use std::task::Poll;

use tokio::time::{Instant, sleep_until};

/// Waits until this moment, or forever if it is `None`.
pub(crate) async fn reached(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Completes at the first poll at which the condition is true. Something else must wake the task.
pub(crate) async fn at_poll(condition: impl Fn() -> bool) {
    poll_fn(|_| if condition() { Poll::Ready(()) } else { Poll::Pending }).await;
}
