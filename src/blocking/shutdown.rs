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
pub(super) struct Shutdown {
    /// `None` after the signal was sent.
    signal: Mutex<Option<(oneshot::Sender<SemaphoreClient>, SemaphoreClient)>>,
    latch: Arc<Latch>,
    patience: Duration,
}

impl Shutdown {
    pub(super) fn new(
        signal: oneshot::Sender<SemaphoreClient>,
        client: SemaphoreClient,
        latch: Arc<Latch>,
    ) -> Self {
        let patience = client.context().settings.call_timeout() + SLACK;
        Self { signal: Mutex::new(Some((signal, client))), latch, patience }
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
        let (is_set, changed) = (self.latch.is_set(), &self.latch.changed);
        let waited = changed.wait_timeout_while(is_set, self.patience, |is_set| !*is_set);
        drop(waited.expect("no code panics while it holds the lock"));
    }

    fn is_done(&self) -> bool {
        *self.latch.is_set()
    }
}

#[derive(Default)]
pub(super) struct Latch {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Latch {
    fn is_set(&self) -> MutexGuard<'_, bool> {
        self.is_set.lock().expect("no code panics while it holds the lock")
    }
}

/// The background thread drops this value when the thread has shut down or panics.
pub(super) struct SetOnDrop(pub(super) Arc<Latch>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        *self.0.is_set() = true;
        self.0.changed.notify_all();
    }
}

/// On Linux, the main thread has the ID of the process. On other systems, and without `/proc`, the
/// main thread has the name that Rust gives to it.
fn is_main_thread() -> bool {
    match std::fs::read_link("/proc/thread-self") {
        Ok(process_task_thread) => {
            let mut ids = process_task_thread.iter();
            ids.next() == ids.next_back()
        }
        Err(_) => thread::current().name() == Some("main"),
    }
}

thread_local! {
    static MINE: AtExit = AtExit {
        is_main: cfg!(not(windows)) && is_main_thread(),
        process: std::process::id(),
        shutdowns: RefCell::default(),
    };
}

/// Makes the end of the main thread wait for the background threads. A `static` is never dropped,
/// and `exit` drops nothing, but the C library drops the `thread_local!` values of the main thread
/// when this thread ends. There are two exceptions: musl's C library does not drop these values,
/// and Windows drops them when all other threads are gone.
struct AtExit {
    is_main: bool,
    process: u32,
    shutdowns: RefCell<Vec<Arc<Shutdown>>>,
}

/// If the current thread is the main thread, makes the end of the main thread wait for the
/// background thread.
pub(super) fn note(shutdown: &Arc<Shutdown>) {
    // This fails if the thread is already ending.
    let _ = MINE.try_with(|mine| {
        if mine.is_main {
            let mut shutdowns = mine.shutdowns.borrow_mut();
            if !shutdowns.iter().any(|other| Arc::ptr_eq(other, shutdown)) {
                shutdowns.retain(|other| !other.is_done());
                shutdowns.push(shutdown.clone());
            }
        }
    });
}

impl Drop for AtExit {
    fn drop(&mut self) {
        // In a forked process, the threads belong to the parent.
        if self.process == std::process::id() {
            let shutdowns = self.shutdowns.borrow();
            shutdowns.iter().for_each(|shutdown| shutdown.signal());
            shutdowns.iter().for_each(|shutdown| shutdown.wait());
        }
    }
}
