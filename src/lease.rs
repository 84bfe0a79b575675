//! A lease: until when a permit is held, on this machine's monotonic clock.
//!
//! It counts from before the request was sent, so it ends here before it ends on the server, and
//! the server's clock is never compared with ours.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::claim::Grant;
use crate::home::Timer;

#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) token: u64,
    /// When a permit is held no longer, however often it was renewed.
    latest_end: Option<Instant>,
    state: Mutex<State>,
    /// The state has changed.
    changed: Notify,
}

#[derive(Debug, Clone, Copy)]
struct State {
    ends: Instant,
    /// Once lost, lost for good: the holder may have been told.
    lost: bool,
    /// By its holder: what comes after that is no loss.
    given_back: bool,
}

impl Lease {
    pub(crate) fn new(grant: Grant, duration: Duration, max_hold: Option<Duration>) -> Self {
        let state =
            Mutex::new(State { ends: grant.since + duration, lost: false, given_back: false });
        // One so long that it cannot be added to the clock is none.
        let latest_end = max_hold.and_then(|max_hold| grant.since.checked_add(max_hold));
        let changed = Notify::new();
        Self { token: grant.token, latest_end, state, changed }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it is locked")
    }

    /// For how long it may be renewed now; `None` when it has been held for as long as it may be.
    pub(crate) fn next_duration(&self, duration: Duration) -> Option<Duration> {
        let Some(latest_end) = self.latest_end else {
            return Some(duration);
        };
        let left = latest_end.saturating_duration_since(Instant::now()).min(duration);
        (left >= Duration::from_millis(1)).then_some(left)
    }

    /// A renewal was granted that was asked for at `sent`. Answers whether it is still held.
    pub(crate) fn renewed(&self, sent: Instant, duration: Duration) -> bool {
        let mut state = self.state();
        state.lost |= Instant::now() >= state.ends;
        if !state.lost {
            // Answers may come in another order than they were asked for.
            state.ends = state.ends.max(sent + duration);
        }
        drop(state);
        self.changed.notify_waiters();
        !self.is_lost()
    }

    pub(crate) fn lose(&self) {
        self.state().lost = true;
        self.changed.notify_waiters();
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost_at(Instant::now())
    }

    pub(crate) fn is_lost_at(&self, now: Instant) -> bool {
        let State { ends, lost, given_back } = *self.state();
        lost || (!given_back && now >= ends)
    }

    /// Whether it is lost, or was given back.
    pub(crate) fn is_over_at(&self, now: Instant) -> bool {
        let State { ends, lost, given_back } = *self.state();
        lost || given_back || now >= ends
    }

    /// Answers whether it was lost before.
    pub(crate) fn give_back(&self, now: Instant) -> bool {
        let mut state = self.state();
        state.lost |= !state.given_back && now >= state.ends;
        state.given_back = true;
        let lost = state.lost;
        drop(state);
        self.changed.notify_waiters();
        lost
    }

    pub(crate) fn expires_in(&self) -> Duration {
        let State { ends, lost, .. } = *self.state();
        if lost { Duration::ZERO } else { ends.saturating_duration_since(Instant::now()) }
    }

    /// Waits until it is lost or given back, whatever runtime the caller is in. Where nobody is left
    /// to measure time it is lost at once: nobody can renew it either.
    pub(crate) async fn ended(&self, home: &Handle) {
        loop {
            // From here on no change goes unnoticed.
            let changed = self.changed.notified();
            if self.is_over_at(Instant::now()) {
                return;
            }
            let (mut changed, mut timer) = (pin!(changed), Timer::new(self.state().ends));
            let is_measured = poll_fn(|cx| match changed.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(true),
                Poll::Pending => timer.poll(home, cx),
            });
            if !is_measured.await {
                self.lose();
            }
        }
    }
}
