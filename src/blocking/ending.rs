//! The end of the background thread, which first delivers the releases of dropped permits.

use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::client::SemaphoreClient;

/// The maximum time between the call timeout and the return of a shutdown.
const SLACK: Duration = Duration::from_millis(100);

/// Shuts the background thread down once: after the last handle is gone, or when the main thread
/// ends.
pub(super) struct Ending {
    /// `None` after the signal was sent.
    signal: Mutex<Option<(oneshot::Sender<SemaphoreClient>, SemaphoreClient)>>,
    over: Arc<Over>,
    patience: Duration,
}

impl Ending {
    pub(super) fn new(
        signal: oneshot::Sender<SemaphoreClient>,
        client: SemaphoreClient,
        over: Arc<Over>,
    ) -> Self {
        let patience = client.context().settings.call_timeout() + SLACK;
        Self { signal: Mutex::new(Some((signal, client))), over, patience }
    }

    pub(super) fn signal(&self) {
        let unsent = self.signal.lock().expect("no code panics while it holds the lock").take();
        if let Some((signal, client)) = unsent {
            // The thread waits for this message as long as `self` exists.
            let _ = signal.send(client);
        }
    }

    /// Waits until the thread has shut down, which takes up to twice the response timeout.
    pub(super) fn wait(&self) {
        let waited = self.over.changed.wait_timeout_while(self.over.is(), self.patience, |is| !*is);
        drop(waited.expect("no code panics while it holds the lock"));
    }

    fn is_over(&self) -> bool {
        *self.over.is()
    }
}

#[derive(Default)]
pub(super) struct Over {
    is: Mutex<bool>,
    changed: Condvar,
}

impl Over {
    fn is(&self) -> MutexGuard<'_, bool> {
        self.is.lock().expect("no code panics while it holds the lock")
    }
}

/// The background thread drops this value when the thread has shut down or panics.
pub(super) struct SetOver(pub(super) Arc<Over>);

impl Drop for SetOver {
    fn drop(&mut self) {
        *self.0.is() = true;
        self.0.changed.notify_all();
    }
}

thread_local! {
    static MINE: AtExit = AtExit {
        is_main: cfg!(not(windows)) && thread::current().name() == Some("main"),
        process: std::process::id(),
        endings: RefCell::default(),
    };
}

/// Makes the end of the main thread wait for the background threads. A `static` is never dropped,
/// and `exit` drops nothing, but the C library drops the `thread_local!` values of the main thread
/// when this thread ends. There are two exceptions: musl's C library does not drop these values,
/// and Windows drops them when all other threads are gone.
struct AtExit {
    is_main: bool,
    process: u32,
    endings: RefCell<Vec<Arc<Ending>>>,
}

/// If the current thread is the main thread, makes the end of the main thread wait for the
/// background thread.
pub(super) fn note(ending: &Arc<Ending>) {
    // This fails if the thread is already ending.
    let _ = MINE.try_with(|mine| {
        if mine.is_main {
            let mut endings = mine.endings.borrow_mut();
            if !endings.iter().any(|other| Arc::ptr_eq(other, ending)) {
                endings.retain(|other| !other.is_over());
                endings.push(ending.clone());
            }
        }
    });
}

impl Drop for AtExit {
    fn drop(&mut self) {
        // In a forked process, the threads belong to the parent.
        if self.process == std::process::id() {
            let endings = self.endings.borrow();
            endings.iter().for_each(|ending| ending.signal());
            endings.iter().for_each(|ending| ending.wait());
        }
    }
}
