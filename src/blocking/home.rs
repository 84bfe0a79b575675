//! The thread in the background, with the runtime that makes all calls.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::coop::consume_budget;

use crate::client::Semaphores;
use crate::error::Error;

/// When the last one who has it drops it, the thread shuts down what was connected, so that what
/// was dropped is given back, and ends.
pub(super) struct Home {
    handle: Handle,
    semaphores: Semaphores,
    end: Option<oneshot::Sender<Semaphores>>,
}

impl Home {
    /// Starts the thread, and connects in its runtime.
    pub(super) fn connect(
        connecting: impl Future<Output = Result<Semaphores, Error>>,
    ) -> Result<Arc<Self>, Error> {
        check_thread()?;
        let failed = |error| Error::invalid("thread", format!("none can be started: {error}"));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<Semaphores>();
        let run = async {
            // An error where nothing was connected.
            if let Ok(semaphores) = ended.await {
                semaphores.shutdown().await;
            }
        };
        let thread = thread::Builder::new().name("redis-semaphore".to_owned());
        thread.spawn(move || runtime.block_on(run)).map_err(failed)?;
        let semaphores = handle.block_on(connecting)?;
        Ok(Arc::new(Self { handle, semaphores, end: Some(end) }))
    }

    pub(super) fn semaphores(&self) -> &Semaphores {
        &self.semaphores
    }

    /// Waits for it, on a thread that may.
    pub(super) fn wait<T>(&self, future: impl Future<Output = T>) -> Result<T, Error> {
        check_thread()?;
        Ok(self.handle.block_on(future))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            // It waits for that as long as this is there.
            let _ = end.send(self.semaphores.clone());
        }
    }
}

pub(super) fn check_thread() -> Result<(), Error> {
    match is_async_thread() {
        false => Ok(()),
        true => Err(Error::invalid(
            "thread",
            "it belongs to an async runtime, where nothing may block: use the async Semaphores \
             there, or tokio::task::spawn_blocking",
        )),
    }
}

/// tokio does not tell whether a thread may block: it panics if not. But where tasks are polled
/// each has a budget, which is used up at some time; where one may block there is no end of it. (Nor
/// inside of `tokio::task::unconstrained`, where tokio's panic has to do.)
fn is_async_thread() -> bool {
    /// More than any budget of tokio's, which is 128.
    const MANY: usize = 1024;
    if Handle::try_current().is_err() {
        return false;
    }
    let mut cx = Context::from_waker(Waker::noop());
    (0..MANY).any(|_| pin!(consume_budget()).poll(&mut cx).is_pending())
}
