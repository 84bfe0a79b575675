//! Releases and last leases that Redis has not confirmed yet, and their delivery if the runtime
//! ends.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::FutureExt;

use super::{Core, Task, Tasks};
use crate::context::Remaining;
use crate::error::Error;
use crate::protocol::{MAX_BATCH, ReleaseMode};
use crate::semaphore::ledger::Acquisition;

/// The calls that a task must deliver. A runtime that ends drops its tasks at any point. If this
/// guard is dropped before it is [settled](Self::settle), its calls are made over a new connection:
/// see [`Context::at_the_end`](crate::context::Context::at_the_end). So the end of `main`, which
/// drops permits and then the runtime, loses no call if Redis replies in time.
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
    /// Returns false if the runtime has dropped the tasks that made the calls: the guard then
    /// repeats all calls when it is dropped. Otherwise returns true, because nothing more can be
    /// done.
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
        let (releases, expiring) =
            (std::mem::take(&mut self.releases), std::mem::take(&mut self.expiring));
        let calls = self.core.clone().deliver(releases, expiring).boxed();
        self.core.context.at_the_end(Remaining { requests, calls });
    }
}

impl Core {
    async fn deliver(
        self: Arc<Self>,
        releases: Vec<(ReleaseMode, String)>,
        expiring: Vec<Arc<Acquisition>>,
    ) -> Result<(), Error> {
        let patience = self.context.settings.response_timeout;
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
