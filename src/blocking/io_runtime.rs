//! The background thread, which runs the I/O runtime.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::coop::consume_budget;

use super::shutdown::{self, Latch, SetOnDrop, Shutdown};
use crate::client::SemaphoreClient;
use crate::error::Error;

/// The connection that clients, semaphores, permits and other handles share. When the last handle
/// is dropped, the background thread shuts the client down and ends. The shutdown delivers pending
/// releases. Dropping the last handle blocks until the shutdown is complete, unless the current
/// thread belongs to an async runtime.
pub(super) struct IoRuntime {
    handle: Handle,
    client: SemaphoreClient,
    shutdown: Arc<Shutdown>,
    /// The thread runs until this field is dropped, because other threads may still make calls.
    _here: oneshot::Sender<()>,
}

impl IoRuntime {
    pub(super) fn connect(
        connecting: impl Future<Output = Result<SemaphoreClient, Error>>,
    ) -> Result<Arc<Self>, Error> {
        check_thread()?;
        let failed = |error| Error::invalid("thread", format!("none can be started: {error}"));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (signal, signaled) = oneshot::channel::<SemaphoreClient>();
        let (here, gone) = oneshot::channel::<()>();
        let latch = Arc::<Latch>::default();
        let set_on_drop = SetOnDrop(latch.clone());
        let run = async move {
            // This fails if connecting failed.
            if let Ok(client) = signaled.await {
                client.shutdown().await;
            }
            drop(set_on_drop);
            // No value is ever sent: this line waits until the sender is dropped.
            let _ = gone.await;
        };
        let thread = thread::Builder::new().name("redis-semaphore".to_owned());
        thread.spawn(move || runtime.block_on(run)).map_err(failed)?;
        let client = handle.block_on(connecting)?;
        let shutdown = Arc::new(Shutdown::new(signal, client.clone(), latch));
        shutdown::note(&shutdown);
        Ok(Arc::new(Self { handle, client, shutdown, _here: here }))
    }

    pub(super) fn semaphores(&self) -> &SemaphoreClient {
        &self.client
    }

    /// Waits for the future. Fails in a forked process, and if the current thread must not block.
    pub(super) fn wait<T>(&self, future: impl Future<Output = T>) -> Result<T, Error> {
        check_thread()?;
        self.client.context().check_process()?;
        shutdown::note(&self.shutdown);
        Ok(self.handle.block_on(future))
    }
}

impl Drop for IoRuntime {
    fn drop(&mut self) {
        // A forked process does not have the background thread.
        if self.client.context().is_forked() {
            return;
        }
        self.shutdown.signal();
        shutdown::note(&self.shutdown);
        if !is_async_thread() {
            self.shutdown.wait();
        }
    }
}

pub(super) fn check_thread() -> Result<(), Error> {
    match is_async_thread() {
        false => Ok(()),
        true => Err(Error::invalid(
            "thread",
            "this thread belongs to an async runtime and must not block: use the async \
             SemaphoreClient, or tokio::task::spawn_blocking",
        )),
    }
}

/// Returns whether the current thread must not block. Tokio has no function for this check. But
/// each polled task has a budget that runs out, and a thread that is allowed to block has no
/// budget. This check does not detect `tokio::task::unconstrained`, in which Tokio panics.
fn is_async_thread() -> bool {
    /// A number larger than Tokio's largest budget, which is 128.
    const MANY: usize = 1024;
    if Handle::try_current().is_err() {
        return false;
    }
    let mut cx = Context::from_waker(Waker::noop());
    (0..MANY).any(|_| pin!(consume_budget()).poll(&mut cx).is_pending())
}
