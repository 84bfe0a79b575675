//! The end of the thread in the background: what was dropped is delivered before.

use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::client::SemaphoreClient;
use crate::runtime::SLACK;

/// The thread is told once to shut down: by the last handle, or at the end of the main thread.
pub(super) struct Ending {
    told: Mutex<Option<(oneshot::Sender<SemaphoreClient>, SemaphoreClient)>>,
    over: Arc<Over>,
    patience: Duration,
}

impl Ending {
    pub(super) fn new(
        tell: oneshot::Sender<SemaphoreClient>,
        client: SemaphoreClient,
        over: Arc<Over>,
    ) -> Self {
        let patience = client.context().settings.call_timeout() + SLACK;
        Self { told: Mutex::new(Some((tell, client))), over, patience }
    }

    pub(super) fn tell(&self) {
        let told = self.told.lock().expect("nothing panics while it is locked").take();
        if let Some((tell, client)) = told {
            // It waits for that as long as this is there.
            let _ = tell.send(client);
        }
    }

    /// Until it has shut down. That takes twice the response timeout at most.
    pub(super) fn wait(&self) {
        let waited = self.over.changed.wait_timeout_while(self.over.is(), self.patience, |is| !*is);
        drop(waited.expect("nothing panics while it is locked"));
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
        self.is.lock().expect("nothing panics while it is locked")
    }
}

/// The thread has this until it is over, also where it panics.
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

/// What is in a `static` is never dropped, and `exit` drops nothing. But the main thread's values
/// of `thread_local!` are, by the C library: not by every one (musl's does not), and on Windows
/// when all other threads are gone.
struct AtExit {
    is_main: bool,
    process: u32,
    endings: RefCell<Vec<Arc<Ending>>>,
}

/// Where the main thread uses this, its end waits for it.
pub(super) fn note(ending: &Arc<Ending>) {
    // An error where the thread ends already.
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
        // In a forked process the threads are the parent's.
        if self.process == std::process::id() {
            let endings = self.endings.borrow();
            endings.iter().for_each(|ending| ending.tell());
            endings.iter().for_each(|ending| ending.wait());
        }
    }
}
