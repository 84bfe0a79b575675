//! Waiting in any runtime. Calls are made on the I/O runtime (`home`), whose timers make them end
//! in time. A caller on another runtime must not rely on these timers, because the I/O runtime may
//! be idle, blocked or ended.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::{Handle, Id};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep_until};

use super::Deadline;

/// The time after a deadline in which a call on the I/O runtime reports its own error.
pub(crate) const SLACK: Duration = Duration::from_millis(100);

/// Waits for work on the I/O runtime. A caller on another runtime waits at most until the deadline,
/// and then gets `None`.
pub(crate) async fn within<T>(
    home: &Handle,
    deadline: Deadline,
    work: impl Future<Output = T>,
) -> Option<T> {
    // Created only when needed, because most callers are on the I/O runtime.
    let (mut work, mut timer) = (pin!(work), None);
    poll_fn(|cx| {
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(done));
        }
        // A caller without a runtime must rely on the I/O runtime.
        if current_runtime().is_none_or(|current| current == home.id()) {
            return Poll::Pending;
        }
        let Some(deadline) = deadline.at().and_then(|at| at.checked_add(SLACK)) else {
            return Poll::Pending;
        };
        let timer = timer.get_or_insert_with(|| Timer::new(deadline));
        timer.poll(home, cx).map(|_| None)
    })
    .await
}

/// A timer on the runtime of its caller. Different runtimes may poll the timer one after the other,
/// and each may end. If the caller has no runtime, the timer is on the I/O runtime.
pub(crate) struct Timer {
    deadline: Instant,
    set: Option<Set>,
}

enum Set {
    In(Id, Pin<Box<Sleep>>),
    AtHome(oneshot::Receiver<()>),
}

impl Timer {
    pub(crate) fn new(deadline: Instant) -> Self {
        Self { deadline, set: None }
    }

    /// Returns whether the deadline is reached. `false`: the I/O runtime has ended, so the time
    /// cannot be measured.
    pub(crate) fn poll(&mut self, home: &Handle, cx: &mut Context<'_>) -> Poll<bool> {
        let current = current_runtime();
        let is_set = match &self.set {
            Some(Set::In(id, _)) => current == Some(*id),
            Some(Set::AtHome(_)) => current.is_none(),
            None => false,
        };
        if !is_set {
            self.set = Some(Set::new(home, current, self.deadline));
        }
        match self.set.as_mut().expect("it was just made") {
            Set::In(_, sleep) => sleep.as_mut().poll(cx).map(|()| true),
            Set::AtHome(over) => over.poll_unpin(cx).map(|over| over.is_ok()),
        }
    }
}

impl Set {
    fn new(home: &Handle, current: Option<Id>, deadline: Instant) -> Self {
        if let Some(id) = current {
            return Self::In(id, Box::pin(sleep_until(deadline)));
        }
        let (mut sender, over) = oneshot::channel();
        home.spawn(async move {
            tokio::select! {
                () = sleep_until(deadline) => {}
                // The waiting task is gone.
                () = sender.closed() => {}
            }
            let _ = sender.send(());
        });
        Self::AtHome(over)
    }
}

pub(crate) fn current_runtime() -> Option<Id> {
    Some(Handle::try_current().ok()?.id())
}

pub(crate) fn is_current(runtime: &Handle) -> bool {
    current_runtime() == Some(runtime.id())
}
