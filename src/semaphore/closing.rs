//! The end of acquiring by one semaphore of this process.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Each request listens to one of several, since all cores would wait for each other at one.
const LISTS: usize = 16;

#[derive(Default)]
pub(crate) struct Closing {
    is_closed: AtomicBool,
    closed: [Notify; LISTS],
}

impl Closing {
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.closed.iter().for_each(Notify::notify_waiters);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// The answer to `work`; `None` when it is closed before. Once it is closed no answer gets
    /// through.
    pub(crate) async fn unless_closed<T>(
        &self,
        work: Pin<&mut impl Future<Output = T>>,
    ) -> Option<T> {
        // From here on no close goes unnoticed.
        let closed = self.closed[fastrand::usize(..LISTS)].notified();
        if self.is_closed() {
            return None;
        }
        tokio::select! {
            biased;
            () = closed => None,
            answer = work => Some(answer),
        }
    }
}
