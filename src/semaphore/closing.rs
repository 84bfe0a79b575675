//! Ends all acquires of one semaphore in this process, after a close or a shutdown.

use std::pin::Pin;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Acquires are spread over several lists, because all CPU cores would contend for a single list.
const LISTS: usize = 16;

pub(crate) struct Closing {
    is_closed: AtomicBool,
    is_shut_down: AtomicBool,
    /// The lists are created at first use, because a program may have many idle semaphores.
    ends: LazyLock<Box<[Notify; LISTS]>>,
}

impl Default for Closing {
    fn default() -> Self {
        let ends = LazyLock::new(Box::default as fn() -> _);
        Self { is_closed: AtomicBool::new(false), is_shut_down: AtomicBool::new(false), ends }
    }
}

impl Closing {
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.ends.iter().for_each(Notify::notify_waiters);
    }

    pub(crate) fn shut_down(&self) {
        self.is_shut_down.store(true, Ordering::SeqCst);
        self.ends.iter().for_each(Notify::notify_waiters);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.is_shut_down.load(Ordering::SeqCst)
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.is_closed() || self.is_shut_down()
    }

    /// Returns the result of `work`. After a close or a shutdown, returns `None`, even if `work` is
    /// done.
    pub(crate) async fn unless_ended<T>(
        &self,
        work: Pin<&mut impl Future<Output = T>>,
    ) -> Option<T> {
        // From here on, no close or shutdown is missed.
        let ends = self.ends[fastrand::usize(..LISTS)].notified();
        if self.is_ended() {
            return None;
        }
        tokio::select! {
            biased;
            () = ends => None,
            response = work => Some(response),
        }
    }
}
