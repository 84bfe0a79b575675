//! Renewal: one call for each 1,000 permits of a semaphore, every third of the lease.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Done;
use crate::calls::MAX_BATCH;
use crate::gate::Gate;
use crate::lease::Lease;

/// Until the next attempt when Redis does not answer: leases have two thirds left at the first.
const RETRY_SHARE: u32 = 10;

pub(super) async fn renew(gate: Arc<Gate>) -> Done {
    let started = Instant::now();
    let mut renewable = Vec::new();
    for lease in gate.leases_to_renew() {
        if lease.is_lost() {
            stop(&gate, &lease);
        } else if let Some(duration) = lease.next_duration(gate.settings.lease) {
            renewable.push((lease, duration));
        }
    }
    let mut next = started + gate.renewal_interval();
    for batch in renewable.chunks(MAX_BATCH) {
        if let Err(error) = renew_batch(&gate, batch).await {
            tracing::warn!(semaphore = gate.name, %error, "renewal failed, trying again");
            next = Instant::now() + gate.renewal_interval() / RETRY_SHARE;
            break;
        }
    }
    Done::Renewed(Arc::downgrade(&gate), next)
}

async fn renew_batch(
    gate: &Arc<Gate>,
    batch: &[(Arc<Lease>, Duration)],
) -> Result<(), crate::Error> {
    let requests: Vec<_> =
        batch.iter().map(|(lease, duration)| (lease.claim.id.as_str(), *duration)).collect();
    // No longer than until the next attempt is due anyway.
    let answer = gate.refresh(&requests, gate.renewal_interval() / RETRY_SHARE).await?;
    for ((lease, duration), is_held) in batch.iter().zip(answer.reply) {
        if !is_held {
            lease.lose();
        }
        if !is_held || !lease.renewed(answer.sent, *duration) {
            stop(gate, lease);
        }
    }
    Ok(())
}

fn stop(gate: &Arc<Gate>, lease: &Lease) {
    gate.stop_renewing(&lease.claim.id);
    // A permit that was given back meanwhile was not lost.
    if !lease.claim.is_over() {
        tracing::warn!(
            semaphore = gate.name,
            id = lease.claim.id,
            token = lease.token,
            "permit lost"
        );
    }
}
