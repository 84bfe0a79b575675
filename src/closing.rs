//! The end of acquiring by one semaphore of this process.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct Closing {
    is_closed: AtomicBool,
    closed: Notify,
}

impl Closing {
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.closed.notify_waiters();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    pub(crate) async fn closed(&self) {
        // From here on no close goes unnoticed.
        let closed = self.closed.notified();
        if !self.is_closed() {
            closed.await;
        }
    }
}
