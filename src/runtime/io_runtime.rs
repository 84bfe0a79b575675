//! Waiting outside the I/O runtime, which is the runtime that connected. All calls, connections and
//! timers belong to the I/O runtime. Callers may be in another runtime, or in none.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep, sleep_until};

/// Why a wait has ended before its work was done.
pub(crate) enum Over {
    /// The deadline has passed.
    Deadline,
    /// The I/O runtime has ended.
    IoRuntime,
}

/// Waits for `work`, in any runtime, until the deadline or the end of the I/O runtime.
pub(crate) async fn until<T>(
    io: &Handle,
    deadline: Instant,
    work: impl Future<Output = T>,
) -> Result<T, Over> {
    let (mut work, mut timer) = (pin!(work), None);
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Ok(done)),
        Poll::Pending => {
            let is_here = is_current(io);
            // The caller may have moved to another runtime.
            timer.take_if(|timer| matches!(timer, Timer::Here(_)) && !is_here);
            timer.get_or_insert_with(|| Timer::new(io, is_here, deadline)).poll(cx).map(Err)
        }
    })
    .await
}

/// A timer of the I/O runtime.
enum Timer {
    /// The caller is in the I/O runtime.
    Here(Pin<Box<Sleep>>),
    /// The caller is outside the I/O runtime. A `Sleep` must not be polled after its runtime has
    /// ended, so a task of the I/O runtime polls it.
    Elsewhere(JoinHandle<()>),
}

impl Timer {
    fn new(io: &Handle, is_here: bool, deadline: Instant) -> Self {
        match is_here {
            true => Self::Here(Box::pin(sleep_until(deadline))),
            false => Self::Elsewhere(io.spawn(async move { sleep_until(deadline).await })),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Over> {
        match self {
            Self::Here(sleep) => sleep.as_mut().poll(cx).map(|()| Over::Deadline),
            Self::Elsewhere(task) => task.poll_unpin(cx).map(|slept| match slept {
                Ok(()) => Over::Deadline,
                Err(_) => Over::IoRuntime,
            }),
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Self::Elsewhere(task) = self {
            task.abort();
        }
    }
}

pub(crate) fn is_current(runtime: &Handle) -> bool {
    Handle::try_current().is_ok_and(|current| current.id() == runtime.id())
}
