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
pub(super) async fn refresh_permits(core: &Arc<Core>) -> Option<Instant> {
    let started = Instant::now();
    let permits = core.ledger.to_refresh();
    if permits.is_empty() {
        return None;
    }
    let mut next = started + core.settings.refresh_interval();
    // The calls are sent together. If they were sent one after the other, each call would add a
    // round trip.
    let refreshed =
        permits.chunks(MAX_BATCH).map(|some| refresh_batch(core, refreshable(core, some)));
    for error in join_all(refreshed).await.into_iter().filter_map(Result::err) {
        core.meter.refresh_failed();
        tracing::warn!(semaphore = core.name, %error, "refreshing failed; it is retried");
        next = Instant::now() + core.settings.refresh_interval() / PAUSE_SHARE;
    }
    Some(next)
}

type Refreshable<'a> = (&'a Acquisition, &'a Lease, Duration);

/// Returns the permits that may be refreshed, each with its next lease.
fn refreshable<'a>(core: &Core, permits: &'a [Arc<Acquisition>]) -> Vec<Refreshable<'a>> {
    let mut refreshable = Vec::new();
    for permit in permits {
        // A permit that the caller has not received yet is confirmed when the caller receives it.
        let Some(lease) = permit.lease().filter(|_| !permit.is_ended()) else {
            continue;
        };
        if lease.is_lost() {
            stop(core, permit);
        } else if let Some(duration) = lease.next_duration(core.settings.lease) {
            refreshable.push((&**permit, lease, duration));
        }
    }
    refreshable
}

/// Refreshes a batch of permits. The call does not use the batcher of `refresh`, because an attempt
/// that has timed out would delay the next attempt in that batcher.
async fn refresh_batch(core: &Arc<Core>, batch: Vec<Refreshable<'_>>) -> Result<(), Error> {
    if batch.is_empty() {
        return Ok(());
    }
    let requests: Vec<_> = batch.iter().map(|(permit, _, lasts)| (*permit, *lasts)).collect();
    let response =
        core.refresh_many(&requests, core.settings.refresh_interval() / ATTEMPT_SHARE).await?;
    for ((permit, lease, lasts), is_held) in batch.iter().zip(response.reply) {
        if !is_held || !lease.refreshed(response.sent, *lasts) {
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
