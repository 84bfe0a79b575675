//! Notices that a runtime has ended, after the runtime has dropped all its tasks.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

/// Calls a function when the current runtime ends, on a thread of this runtime, after the runtime
/// has dropped all its tasks. The end of the runtime waits for the function, unless
/// `shutdown_background` ends the runtime.
///
/// Tokio has no such notification. However, a runtime first drops its tasks, and then ends its
/// timers, which wakes everything that waits for a timer. The timer of this type is due only in
/// decades, so only the end of the runtime calls the timer's waker. The tests of `tests/it/ends`
/// fail if a version of Tokio does not call the waker.
pub(crate) struct EndTimer {
    _timer: Mutex<Pin<Box<Sleep>>>,
}

struct AtEnd<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for AtEnd<F> {
    fn wake(self: Arc<Self>) {
        self.0();
    }
}

impl EndTimer {
    pub(crate) fn new(at_end: impl Fn() + Send + Sync + 'static) -> Self {
        let mut timer = Box::pin(sleep(Duration::MAX));
        let waker = Waker::from(Arc::new(AtEnd(at_end)));
        // This poll only registers the waker. Its result is always pending.
        let _ = timer.as_mut().poll(&mut Context::from_waker(&waker));
        Self { _timer: Mutex::new(timer) }
    }
}
