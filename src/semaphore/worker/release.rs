//! Gives back what was dropped.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;

use super::Done;
use crate::error::Error;
use crate::semaphore::claim::Claim;
use crate::semaphore::gate::Gate;
use crate::semaphore::numbered::Numbered;
use crate::semaphore::requests::{How, Release};

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
        let (semaphore, permits, started) = (&gate.name, words.len(), Instant::now());
        tracing::debug!(semaphore, permits, "granted, and wanted by nobody here");
        if let Err(error) = gate.release_unwanted(&words).await {
            warn_of_unreleased(&gate, permits, started, &error);
        }
    }
    Done::Released
}

/// Goes on until Redis confirms it, or the leases have ended anyway.
async fn release(gate: Arc<Gate>, claims: Vec<Arc<Claim>>, how: How) -> Done {
    let until = gate.settings.lease.max(gate.shared().settings.patience());
    let started = Instant::now();
    let ask = |claim: &Arc<Claim>| gate.ask_along(Release { claim: claim.clone(), how }, until);
    let released = join_all(claims.iter().map(ask)).await;
    let failed: Vec<_> = released.into_iter().filter_map(Result::err).collect();
    // Those that failed, too: nobody asks for them any more.
    gate.hold_no_more(claims.iter().map(|claim| &**claim));
    if let Some(error) = failed.first() {
        warn_of_unreleased(&gate, failed.len(), started, error);
    }
    Done::Released
}

fn warn_of_unreleased(gate: &Gate, permits: usize, started: Instant, error: &Error) {
    tracing::warn!(
        semaphore = gate.name,
        permits,
        after = ?started.elapsed(),
        %error,
        "could not give permits back; their leases end by themselves"
    );
}
