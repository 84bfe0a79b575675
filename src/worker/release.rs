//! Gives back what was dropped.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;

use super::Done;
use crate::claim::Claim;
use crate::gate::Gate;
use crate::numbered::Numbered;
use crate::requests::{How, Release};

/// Claims to give back, by semaphore.
#[derive(Default)]
pub(super) struct Releases {
    batches: HashMap<(*const Gate, How), Batch>,
}

struct Batch {
    gate: Arc<Gate>,
    /// One may come twice: from its wait, and from an answer that found it still there.
    claims: Numbered<Arc<Claim>>,
}

impl Releases {
    pub(super) fn add(&mut self, claim: Arc<Claim>, how: How) {
        let gate = &claim.gate;
        self.batches
            .entry((Arc::as_ptr(gate), how))
            .or_insert_with(|| Batch { gate: gate.clone(), claims: Numbered::default() })
            .claims
            .insert(claim.number, claim);
    }

    pub(super) fn into_jobs(self) -> impl Iterator<Item = impl Future<Output = Done> + Send> {
        self.batches.into_iter().map(|((_, how), Batch { gate, claims })| {
            release(gate, claims.into_values().collect(), how)
        })
    }
}

/// Of permits that messages tell of, one call after the other.
pub(super) async fn release_unwanted(gate: Arc<Gate>) -> Done {
    while let Some(words) = gate.unwanted.take() {
        tracing::debug!(semaphore = gate.name, permits = words.len(), "nobody here wants them");
        if let Err(error) = gate.release_unwanted(&words).await {
            let semaphore = &gate.name;
            tracing::warn!(semaphore, %error, "could not give permits back that nobody wants");
        }
    }
    Done::Released
}

/// Goes on until Redis confirms it, or the leases have ended anyway.
async fn release(gate: Arc<Gate>, claims: Vec<Arc<Claim>>, how: How) -> Done {
    let until = gate.settings.lease.max(gate.shared().settings.patience());
    let started = Instant::now();
    let ask = |claim| gate.ask_along(Release { claim, how }, until);
    let released = join_all(claims.into_iter().map(ask)).await;
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
