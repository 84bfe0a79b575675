//! Renewal: all permits of a semaphore together, every third of the lease.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use super::Done;
use crate::Error;
use crate::gate::Gate;
use crate::lease::Lease;
use crate::requests::Refresh;

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
    let renewed = join_all(renewable.iter().map(|(lease, lasts)| renew_one(&gate, lease, *lasts)));
    let next = match renewed.await.into_iter().find_map(Result::err) {
        None => started + gate.renewal_interval(),
        Some(error) => {
            tracing::warn!(semaphore = gate.name, %error, "renewal failed, trying again");
            Instant::now() + gate.renewal_interval() / PAUSE_SHARE
        }
    };
    Done::Renewed(Arc::downgrade(&gate), next)
}

async fn renew_one(gate: &Arc<Gate>, lease: &Lease, duration: Duration) -> Result<(), Error> {
    let request = Refresh { claim: lease.claim.clone(), duration };
    let answer = gate.ask(request, gate.renewal_interval() / ATTEMPT_SHARE).await?;
    if !answer.reply {
        lease.lose();
    }
    if !answer.reply || !lease.renewed(answer.sent, duration) {
        stop(gate, lease);
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
