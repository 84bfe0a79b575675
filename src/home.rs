//! The runtime in which was connected is home: calls are made there, and their timers see to it that
//! they end in time. Who calls from another runtime must not rely on that: the one at home may rest,
//! be blocked, or have ended.

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, Id, RuntimeFlavor};
use tokio::task;
use tokio::time::{Sleep, sleep_until};

use crate::client::Client;

/// Whoever can says what is wrong before that.
const SLACK: Duration = Duration::from_millis(100);

/// Ends the waiting of those who are not at home.
pub(crate) struct Watch {
    deadline: Option<Instant>,
    /// In the caller's runtime, with which it ends.
    timer: Option<(Id, Pin<Box<Sleep>>)>,
}

impl Watch {
    /// For `patience` from `since` on; without end where that is too long for the clock.
    pub(crate) fn new(since: Instant, patience: Duration) -> Self {
        let deadline = since.checked_add(patience).and_then(|at| at.checked_add(SLACK));
        Self { deadline, timer: None }
    }

    /// Ready when it is over. A caller without a runtime has no timer.
    pub(crate) fn poll(&mut self, client: &Client, cx: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = self.deadline else {
            return Poll::Pending;
        };
        let Some(current) = current_runtime().filter(|id| *id != client.home()) else {
            return Poll::Pending;
        };
        if self.timer.as_ref().is_none_or(|(id, _)| *id != current) {
            self.timer = Some((current, Box::pin(sleep_until(deadline.into()))));
        }
        let (_, timer) = self.timer.as_mut().expect("it was just made");
        timer.as_mut().poll(cx)
    }
}

/// The runtime in which this is called. Asking tokio makes all cores count the same handle up and
/// down, so threads that work for one runtime, and so for no other one ever, remember it.
pub(crate) fn current_runtime() -> Option<Id> {
    thread_local!(static WORKS_FOR: Cell<Option<Id>> = const { Cell::new(None) });
    // Only in a task: whatever thread blocks on a future may block on another runtime's next.
    let is_task = task::try_id().is_some();
    if let Some(id) = WORKS_FOR.get().filter(|_| is_task) {
        return Some(id);
    }
    let current = Handle::try_current().ok()?;
    if is_task && current.runtime_flavor() == RuntimeFlavor::MultiThread {
        WORKS_FOR.set(Some(current.id()));
    }
    Some(current.id())
}
