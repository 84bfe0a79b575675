//! Gives back what was dropped: one call for each 1,000 ids of a semaphore.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use super::Done;
use crate::calls::{How, MAX_BATCH};
use crate::gate::Gate;

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
        self.batches.into_iter().flat_map(|((_, how), Batch { gate, ids })| {
            let ids: Vec<String> = ids.into_iter().collect();
            let chunks: Vec<_> = ids.chunks(MAX_BATCH).map(<[String]>::to_vec).collect();
            chunks.into_iter().map(move |ids| release(gate.clone(), ids, how))
        })
    }
}

/// Goes on until Redis confirms it, or the leases have ended anyway.
async fn release(gate: Arc<Gate>, ids: Vec<String>, how: How) -> Done {
    let until = gate.settings.lease.max(gate.shared().settings.patience());
    let started = Instant::now();
    if let Err(error) = gate.release(&ids, how, until).await {
        tracing::warn!(
            semaphore = gate.name,
            permits = ids.len(),
            after = ?started.elapsed(),
            %error,
            "could not give permits back; their leases end by themselves"
        );
    }
    Done::Released
}
