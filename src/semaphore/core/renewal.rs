//! Refreshes the permits of a semaphore at intervals of a third of the lease. One call refreshes up
//! to 1,000 permits.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::Core;
use crate::error::Error;
use crate::protocol::MAX_BATCH;
use crate::semaphore::lease::Lease;
use crate::semaphore::ledger::Acquisition;

/// An attempt times out after half of the refresh interval. So several attempts fit before the
/// permits' deadlines, even if a new connection must be opened. After a failure, the pause is a
/// tenth of the interval.
const ATTEMPT_SHARE: u32 = 2;
const PAUSE_SHARE: u32 = 10;

/// Refreshes all permits. Returns the time of the next refresh.
pub(super) async fn renew(core: &Arc<Core>) -> Option<Instant> {
    let started = Instant::now();
    let permits = core.ledger.to_refresh();
    if permits.is_empty() {
        return None;
    }
    let mut next = started + core.settings.renewal_interval();
    // The calls are sent together. If they were sent one after the other, each call would add a
    // round trip.
    let renewed = permits.chunks(MAX_BATCH).map(|some| renew_batch(core, renewable(core, some)));
    for error in join_all(renewed).await.into_iter().filter_map(Result::err) {
        core.meter.renewal_failed();
        tracing::warn!(semaphore = core.name, %error, "refreshing failed; it is retried");
        next = Instant::now() + core.settings.renewal_interval() / PAUSE_SHARE;
    }
    Some(next)
}

type Renewable<'a> = (&'a Acquisition, &'a Lease, Duration);

/// Returns the permits that may be refreshed, each with its next lease.
fn renewable<'a>(core: &Core, permits: &'a [Arc<Acquisition>]) -> Vec<Renewable<'a>> {
    let mut renewable = Vec::new();
    for permit in permits {
        // A permit that the caller has not received yet is confirmed when the caller receives it.
        let Some(lease) = permit.lease().filter(|_| !permit.is_ended()) else {
            continue;
        };
        if lease.is_lost() {
            stop(core, permit);
        } else if let Some(duration) = lease.next_duration(core.settings.lease) {
            renewable.push((&**permit, lease, duration));
        }
    }
    renewable
}

/// Refreshes a batch of permits. The call does not use the batcher of `refresh`, because an attempt
/// that has timed out would delay the next attempt in that batcher.
async fn renew_batch(core: &Arc<Core>, batch: Vec<Renewable<'_>>) -> Result<(), Error> {
    if batch.is_empty() {
        return Ok(());
    }
    let requests: Vec<_> = batch.iter().map(|(permit, _, lasts)| (*permit, *lasts)).collect();
    let response = core.renew(&requests, core.settings.renewal_interval() / ATTEMPT_SHARE).await?;
    for ((permit, lease, lasts), is_held) in batch.iter().zip(response.reply) {
        if !is_held || !lease.renewed(response.sent, *lasts) {
            stop(core, permit);
        }
    }
    Ok(())
}

fn stop(core: &Core, permit: &Acquisition) {
    // A permit that was released in the meantime was not lost.
    if !permit.is_ended() {
        core.lose(permit);
        core.ledger.remove(std::iter::once(permit));
    }
}
