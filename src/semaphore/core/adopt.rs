//! Adopting: the request that replaces the ID of a permit with a new ID.

use std::sync::Arc;

use redis::Cmd;

use super::batching::{Batcher, Request};
use super::{Core, Refresh};
use crate::semaphore::ledger::{self, Acquisition, Calls, Kinds};

pub(crate) struct Adopt {
    pub(crate) acquisition: Arc<Acquisition>,
    /// The ID of the permit before the adoption.
    pub(crate) from: String,
}

impl Request for Adopt {
    const SCRIPT: &'static str = Refresh::SCRIPT;
    const KIND: Kinds = ledger::ACQUIRE;
    /// Whether the permit was still held.
    type Reply = bool;

    fn batcher(core: &Core) -> &Batcher<Self> {
        &core.adopt_batcher
    }

    fn operation(&self) -> &'static str {
        "adopt"
    }

    fn calls(&self) -> &Calls {
        &self.acquisition.calls
    }

    /// Adoptions are never batched: several adoptions may name the same permit, and one call
    /// accepts each ID only once.
    fn joins(&self, _first: &Self, _core: &Core) -> bool {
        false
    }

    fn is_unneeded(&self, core: &Core) -> bool {
        self.acquisition.is_ended() || core.closing.is_ended()
    }

    fn write(&self, _core: &Core, cmd: &mut Cmd) {
        self.acquisition.calls.set_written();
        cmd.arg(&self.from).arg(&self.acquisition.id);
    }

    fn read(core: &Arc<Core>, reply: &[i64], count: usize) -> Vec<bool> {
        Refresh::read(core, reply, count)
    }
}
