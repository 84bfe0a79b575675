//! Renewal: one call for each 1,000 permits of a semaphore, every third of the lease.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::Done;
use crate::batching::MAX_BATCH;
use crate::error::Error;
use crate::semaphore::acquisition::Acquisition;
use crate::semaphore::core::Core;
use crate::semaphore::lease::Lease;

/// What an attempt may take of the interval, so that there are several before the deadline, also on
/// a new connection; and the pause after one that failed.
const ATTEMPT_SHARE: u32 = 2;
const PAUSE_SHARE: u32 = 10;

pub(super) async fn renew(core: Arc<Core>) -> Done {
    let started = Instant::now();
    let Some(permits) = core.permits_to_renew() else {
        return Done::Renewed { next: None };
    };
    let mut next = started + core.settings.renewal_interval();
    // At once: one after the other they would take as many round trips.
    let renewed = permits.chunks(MAX_BATCH).map(|some| renew_batch(&core, renewable(&core, some)));
    for error in join_all(renewed).await.into_iter().filter_map(Result::err) {
        core.meter.renewal_failed();
        tracing::warn!(semaphore = core.name, %error, "renewal failed, trying again");
        next = Instant::now() + core.settings.renewal_interval() / PAUSE_SHARE;
    }
    Done::Renewed { next: Some(next) }
}

type Renewable<'a> = (&'a Acquisition, &'a Lease, Duration);

/// Each with the lease that it may have from now on.
fn renewable<'a>(core: &Core, permits: &'a [Arc<Acquisition>]) -> Vec<Renewable<'a>> {
    let mut renewable = Vec::new();
    for permit in permits {
        // One that nobody has picked up yet is confirmed when it is.
        let Some(lease) = permit.lease().filter(|_| !permit.is_over()) else {
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

/// Not through the batcher of `refresh`: what an attempt that is given up has out there would hold
/// back the next one.
async fn renew_batch(core: &Arc<Core>, batch: Vec<Renewable<'_>>) -> Result<(), Error> {
    if batch.is_empty() {
        return Ok(());
    }
    let requests: Vec<_> = batch.iter().map(|(permit, _, lasts)| (*permit, *lasts)).collect();
    let answer = core.renew(&requests, core.settings.renewal_interval() / ATTEMPT_SHARE).await?;
    for ((permit, lease, lasts), is_held) in batch.iter().zip(answer.reply) {
        if !is_held || !lease.renewed(answer.sent, *lasts) {
            stop(core, permit);
        }
    }
    Ok(())
}

fn stop(core: &Core, permit: &Acquisition) {
    // A permit that was given back meanwhile was not lost.
    if !permit.is_over() {
        core.lose(permit);
        core.hold_no_more(std::iter::once(permit));
    }
}
