//! The release request, which is sent in batches.

use std::sync::Arc;

use redis::Cmd;
use tokio::time::Instant;

use super::Core;
use super::batching::{Batcher, Request};
use crate::protocol::{ReleaseMode, released};
use crate::releases::Ending;
use crate::semaphore::ledger::{self, Acquisition, Calls, Kinds};

pub(crate) struct Release {
    pub(crate) acquisition: Arc<Acquisition>,
    pub(crate) mode: ReleaseMode,
}

impl Request for Release {
    const SCRIPT: &'static str = "release";
    const KIND: Kinds = ledger::RELEASE;
    const AFTER: Kinds = ledger::ACQUIRE | ledger::RELEASE;
    /// Whether the ID held a permit.
    type Reply = bool;

    fn batcher(core: &Core) -> &Batcher<Self> {
        &core.release_batcher
    }

    fn operation(&self) -> &'static str {
        Ending::Release(self.mode).operation()
    }

    fn calls(&self) -> &Calls {
        &self.acquisition.calls
    }

    fn joins(&self, first: &Self, _core: &Core) -> bool {
        self.mode == first.mode
    }

    fn write_first(&self, _core: &Core, cmd: &mut Cmd) {
        cmd.arg(self.mode.text());
    }

    fn write(&self, _core: &Core, cmd: &mut Cmd) {
        cmd.arg(&self.acquisition.id);
    }

    fn replied<'a>(
        core: &Arc<Core>,
        _sent: Instant,
        responses: impl Iterator<Item = (&'a Self, &'a bool)> + Clone,
    ) {
        core.released(responses.map(|(request, _)| &request.acquisition));
    }

    fn read(core: &Arc<Core>, reply: &[i64], count: usize) -> Vec<bool> {
        released(core.statuses(reply), count)
    }
}
