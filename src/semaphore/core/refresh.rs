//! The refresh request, which is sent in batches.

use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;

use super::Core;
use super::batching::{Batcher, Request};
use crate::protocol::{millis, refreshed};
use crate::semaphore::ledger::{self, Acquisition, Calls, Kinds};

pub(crate) struct Refresh {
    pub(crate) acquisition: Arc<Acquisition>,
    pub(crate) duration: Duration,
    /// The name of the method that the caller used. This method may be an acquire.
    pub(crate) operation: &'static str,
}

impl Request for Refresh {
    const SCRIPT: &'static str = "refresh";
    const KIND: Kinds = ledger::REFRESH;
    /// Whether the permit is still held.
    type Reply = bool;

    fn batcher(core: &Core) -> &Batcher<Self> {
        &core.refresh_batcher
    }

    fn operation(&self) -> &'static str {
        self.operation
    }

    fn calls(&self) -> &Calls {
        &self.acquisition.calls
    }

    fn write(&self, _core: &Core, cmd: &mut Cmd) {
        write(cmd, &self.acquisition, self.duration);
    }

    fn read(core: &Arc<Core>, reply: &[i64], _count: usize) -> Vec<bool> {
        refreshed(core.statuses(reply))
    }
}

/// Writes the arguments that request another lease.
pub(super) fn write(cmd: &mut Cmd, acquisition: &Acquisition, duration: Duration) {
    cmd.arg(&acquisition.id).arg(millis(duration));
}
