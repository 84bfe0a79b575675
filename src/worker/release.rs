//! Gives back what was dropped.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;

use super::Done;
use crate::gate::Gate;
use crate::requests::{How, Release};

/// Ids to give back, by semaphore.
#[derive(Default)]
pub(super) struct Releases {
    batches: HashMap<(*const Gate, How), Batch>,
}

struct Batch {
    gate: Arc<Gate>,
    /// An id may come twice: from its wait, and from an answer that found it still there.
    ids: HashSet<String>,
}

impl Releases {
    pub(super) fn add(&mut self, gate: Arc<Gate>, id: String, how: How) {
        let key = (Arc::as_ptr(&gate), how);
        self.batches
            .entry(key)
            .or_insert_with(|| Batch { gate, ids: HashSet::new() })
            .ids
            .insert(id);
    }

    pub(super) fn into_jobs(self) -> impl Iterator<Item = impl Future<Output = Done> + Send> {
        self.batches.into_iter().map(|((_, how), Batch { gate, ids })| release(gate, ids, how))
    }
}

/// Goes on until Redis confirms it, or the leases have ended anyway.
async fn release(gate: Arc<Gate>, ids: HashSet<String>, how: How) -> Done {
    let until = gate.settings.lease.max(gate.shared().settings.patience());
    let started = Instant::now();
    let released = join_all(ids.into_iter().map(|id| gate.ask(Release { id, how }, until))).await;
    let failed: Vec<_> = released.into_iter().filter_map(Result::err).collect();
    if let Some(error) = failed.first() {
        tracing::warn!(
            semaphore = gate.name,
            permits = failed.len(),
            after = ?started.elapsed(),
            %error,
            "could not give permits back; their leases end by themselves"
        );
    }
    Done::Released
}
