//! Releases and last leases that Redis has not confirmed yet, and their delivery if the runtime
//! ends.

use std::collections::HashSet;
use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;

use super::{Core, Task, Tasks};
use crate::batching::MAX_BATCH;
use crate::error::Error;
use crate::protocol::ReleaseMode;
use crate::semaphore::ledger::Acquisition;

/// A task that releases IDs or lets permits expire holds this guard. A runtime that ends drops its
/// tasks at any point. If the guard is dropped before it is [settled](Self::settle), it delivers
/// its calls over a separate connection. The end of the runtime waits for this delivery. So no call
/// is lost at the end of `main`, which drops permits and then the runtime.
pub(crate) struct Undelivered {
    core: Arc<Core>,
    /// IDs, in the order of their release.
    releases: Vec<(ReleaseMode, String)>,
    pub(crate) expiring: Vec<Arc<Acquisition>>,
}

impl Undelivered {
    pub(super) fn releases(core: &Arc<Core>, releases: Vec<(ReleaseMode, String)>) -> Self {
        Self { core: core.clone(), releases, expiring: Vec::new() }
    }

    pub(crate) fn expiring(core: &Arc<Core>, expiring: Vec<Arc<Acquisition>>) -> Self {
        Self { core: core.clone(), releases: Vec::new(), expiring }
    }

    /// Collects the last leases that the maintenance has not started yet.
    pub(crate) fn of(tasks: &mut Tasks) -> Option<Self> {
        let mut of = None;
        while let Ok((core, task)) = tasks.try_recv() {
            if let Task::LetExpire(acquisition) = task {
                let undelivered = of.get_or_insert_with(|| Self::expiring(&core, Vec::new()));
                undelivered.expiring.push(acquisition);
            }
        }
        of
    }

    /// Handles the failures of the last attempt. Redis has confirmed all calls that did not fail.
    /// Returns false if the runtime has dropped the tasks that made the calls. Otherwise returns
    /// true, because nothing more can be done.
    pub(crate) fn settle(&mut self, failures: &[Error]) -> bool {
        let was_stopped = failures.iter().any(|error| matches!(error, Error::Shutdown));
        if was_stopped && !self.core.context.runs() {
            return false;
        }
        self.expiring.clear();
        true
    }
}

impl Drop for Undelivered {
    fn drop(&mut self) {
        let requests = self.releases.len() + self.expiring.len();
        if requests == 0 {
            return;
        }
        let (core, releases) = (self.core.clone(), std::mem::take(&mut self.releases));
        let expiring = std::mem::take(&mut self.expiring);
        self.core.context.at_the_end(|time, must_wait| {
            let name = core.name.clone();
            let failed = move |error: &dyn Display| {
                tracing::warn!(
                    semaphore = name,
                    requests,
                    %error,
                    "the runtime ended before Redis confirmed all releases; the remaining permits \
                     and requests expire"
                );
            };
            let deliver = move || match in_a_runtime(time, core.deliver(releases, expiring, time)) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => failed(&error),
                Err(error) => failed(&error),
            };
            // A thread is needed, because a runtime cannot be driven inside of another runtime.
            let thread = thread::Builder::new().name("redis-semaphore".to_owned());
            match thread.spawn(deliver) {
                // The thread has reported a panic.
                Ok(delivering) if must_wait => _ = delivering.join(),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "no thread delivers the last releases; they expire");
                }
            }
        });
    }
}

/// Runs `work`, and stops after `patience`, even if a thread of the runtime blocks.
fn in_a_runtime<T>(patience: Duration, work: impl Future<Output = T>) -> io::Result<T> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async { tokio::time::timeout(patience, work).await });
    // A pending name resolution would delay a normal shutdown.
    runtime.shutdown_background();
    done.map_err(Into::into)
}

impl Core {
    async fn deliver(
        self: Arc<Self>,
        releases: Vec<(ReleaseMode, String)>,
        expiring: Vec<Arc<Acquisition>>,
        patience: Duration,
    ) -> Result<(), Error> {
        self.context.servers.leave_connections();
        for mode in [ReleaseMode::Return, ReleaseMode::Forget] {
            // A call accepts each ID only once.
            let mut seen = HashSet::new();
            let of_mode = releases.iter().filter(|(its, id)| *its == mode && seen.insert(id));
            let ids: Vec<_> = of_mode.map(|(_, id)| id.clone()).collect();
            for some in ids.chunks(MAX_BATCH) {
                self.release_ids(mode, some, patience).await?;
            }
        }
        let lease = self.settings.first_lease();
        for some in expiring.chunks(MAX_BATCH) {
            let some: Vec<_> = some.iter().map(|acquisition| (&**acquisition, lease)).collect();
            self.renew(&some, patience).await?;
        }
        Ok(())
    }
}
