//! Renewal: one call for each 1,000 permits of a semaphore, every third of the lease.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Done;
use crate::Error;
use crate::gate::Gate;
use crate::lane::MAX_BATCH;
use crate::lease::Lease;

/// What an attempt may take of the interval, so that there are several before the deadline, also on
/// a new connection; and the pause after one that failed.
const ATTEMPT_SHARE: u32 = 2;
const PAUSE_SHARE: u32 = 10;

pub(super) async fn renew(gate: Arc<Gate>) -> Done {
    let started = Instant::now();
    let Some(leases) = gate.leases_to_renew() else {
        return Done::NothingToRenew;
    };
    let mut renewable = Vec::new();
    for lease in leases {
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
            next = Instant::now() + gate.renewal_interval() / PAUSE_SHARE;
            break;
        }
    }
    Done::Renewed(Arc::downgrade(&gate), next)
}

/// Not in the lane of `refresh`: behind a request that has more patience it might come too late.
async fn renew_batch(gate: &Arc<Gate>, batch: &[(Arc<Lease>, Duration)]) -> Result<(), Error> {
    let requests: Vec<_> = batch.iter().map(|(lease, lasts)| (&*lease.claim, *lasts)).collect();
    let answer = gate.refresh(&requests, gate.renewal_interval() / ATTEMPT_SHARE).await?;
    for ((lease, lasts), is_held) in batch.iter().zip(answer.reply) {
        if !is_held {
            lease.lose();
        }
        if !is_held || !lease.renewed(answer.sent, *lasts) {
            stop(gate, lease);
        }
    }
    Ok(())
}

fn stop(gate: &Arc<Gate>, lease: &Lease) {
    gate.stop_renewing(&lease.claim);
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
