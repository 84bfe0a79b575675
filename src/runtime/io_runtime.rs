//! Waiting outside the I/O runtime, which is the runtime that connected. All calls, connections and
//! timers belong to the I/O runtime. Callers may be in another runtime, or in none.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep, sleep_until};

/// A timer of the I/O runtime.
pub(crate) enum Timer {
    New(Instant),
    Here(Pin<Box<Sleep>>),
    /// The caller is outside the I/O runtime. A `Sleep` must not be polled after its runtime has
    /// ended, so a task of the I/O runtime polls it.
    Elsewhere(JoinHandle<()>),
}

impl Timer {
    pub(crate) fn new(deadline: Instant) -> Self {
        Self::New(deadline)
    }

    /// Returns whether the deadline has passed: false means that the I/O runtime has ended.
    pub(crate) fn poll(&mut self, io: &Handle, cx: &mut Context<'_>) -> Poll<bool> {
        let is_here = is_current(io);
        let unset = match self {
            Self::New(deadline) => Some(*deadline),
            Self::Here(sleep) if !is_here => Some(sleep.deadline()),
            Self::Here(_) | Self::Elsewhere(_) => None,
        };
        if let Some(deadline) = unset {
            *self = match is_here {
                true => Self::Here(Box::pin(sleep_until(deadline))),
                false => Self::Elsewhere(io.spawn(async move { sleep_until(deadline).await })),
            };
        }
        match self {
            Self::Here(sleep) => sleep.as_mut().poll(cx).map(|()| true),
            Self::Elsewhere(task) => task.poll_unpin(cx).map(|slept| slept.is_ok()),
            Self::New(_) => unreachable!("the timer was just started"),
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
