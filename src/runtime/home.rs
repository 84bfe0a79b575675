//! The runtime that connected is home: calls are made there, and their timers see to it
//! that they end in time. Who calls from another runtime must not rely on that: the one at home may
//! rest, be blocked, or have ended.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::{Handle, Id};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep_until};

use super::Deadline;

/// Whoever is at home can say what is wrong before that.
pub(crate) const SLACK: Duration = Duration::from_millis(100);

/// Waits for what is done at home. Whoever is elsewhere waits no longer than until then; `None`
/// says that it was too long.
pub(crate) async fn within<T>(
    home: &Handle,
    deadline: Deadline,
    work: impl Future<Output = T>,
) -> Option<T> {
    // Made when it is needed: most callers are at home.
    let (mut work, mut timer) = (pin!(work), None);
    poll_fn(|cx| {
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(done));
        }
        // Whoever has no runtime must rely on home.
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

/// A timer in whatever runtime its caller is in: it may be polled in one after the other, each of
/// which may have ended since. Where there is none, it is one at home.
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

    /// Answers whether it is then: `false` when home has ended, and nobody is there to measure
    /// time.
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
                // Whoever waited has gone.
                () = sender.closed() => {}
            }
            let _ = sender.send(());
        });
        Self::AtHome(over)
    }
}

/// The runtime in which this is called.
pub(crate) fn current_runtime() -> Option<Id> {
    Some(Handle::try_current().ok()?.id())
}

/// Whether this is called in that one.
pub(crate) fn is_current(runtime: &Handle) -> bool {
    current_runtime() == Some(runtime.id())
}
