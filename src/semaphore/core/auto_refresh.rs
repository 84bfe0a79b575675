//! Refreshes the permits of a semaphore at intervals of a third of the lease. One call refreshes up
//! to 1,000 permits.

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::Core;
use crate::error::Error;
use crate::protocol::MAX_BATCH;
use crate::runtime::reached;
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
    // The calls are sent together. If they were sent one after the other, each call would add a
    // round trip.
    let calls = permits.chunks(MAX_BATCH).map(|some| refresh_batch(core, some));
    let mut refreshing = pin!(join_all(calls));
    let refreshed = loop {
        let deadline = first_deadline(core, &permits);
        tokio::select! {
            biased;
            refreshed = &mut refreshing => break refreshed,
            () = reached(deadline) => {}
        }
    };
    let deadline = first_deadline(core, &permits);
    let mut next = started + core.settings.refresh_interval();
    for error in refreshed.into_iter().filter_map(Result::err) {
        core.meter.refresh_failed();
        next = Instant::now() + core.settings.refresh_interval() / PAUSE_SHARE;
        // Otherwise, all these permits are lost.
        if deadline.is_some() {
            tracing::warn!(semaphore = core.name, %error, "refreshing failed; it is retried");
        }
    }
    Some(deadline.map_or(next, |deadline| deadline.min(next)))
}

/// Returns the permits that are held, with their leases. Stops refreshing the permits that are
/// lost.
fn held<'a>(core: &Core, permits: &'a [Arc<Acquisition>]) -> Vec<(&'a Acquisition, &'a Lease)> {
    let mut held = Vec::new();
    for permit in permits {
        // A permit that the caller has not received yet is confirmed when the caller receives it.
        let Some(lease) = permit.lease().filter(|_| !permit.is_ended()) else {
            continue;
        };
        match lease.is_lost() {
            true => stop(core, permit),
            false => held.push((&**permit, lease)),
        }
    }
    held
}

/// Returns the time at which the next of these permits is lost if it is not refreshed.
fn first_deadline(core: &Core, permits: &[Arc<Acquisition>]) -> Option<Instant> {
    let left = held(core, permits).into_iter().map(|(_, lease)| lease.expires_in()).min();
    left.map(|left| Instant::now() + left)
}

/// Refreshes a batch of permits. The call does not use the batcher of `refresh`, because an attempt
/// that has timed out would delay the next attempt in that batcher.
async fn refresh_batch(core: &Arc<Core>, permits: &[Arc<Acquisition>]) -> Result<(), Error> {
    let refreshable = held(core, permits).into_iter().filter_map(|(permit, lease)| {
        Some((permit, lease, lease.next_duration(core.settings.lease)?))
    });
    let batch: Vec<_> = refreshable.collect();
    if batch.is_empty() {
        return Ok(());
    }
    let requests: Vec<_> = batch.iter().map(|(permit, _, lasts)| (*permit, *lasts)).collect();
    let (sent, are_held) =
        core.refresh_many(&requests, core.settings.refresh_interval() / ATTEMPT_SHARE).await?;
    for ((permit, lease, lasts), is_held) in batch.into_iter().zip(are_held) {
        if !is_held || !lease.refreshed(sent, lasts) {
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
