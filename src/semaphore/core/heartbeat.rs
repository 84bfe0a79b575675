//! Heartbeats: the acquire of each waiting request is sent again. The server then knows that this
//! process is alive. The replies also contain grants whose messages were lost.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::{Acquire, Core, IfFull};
use crate::error::{Error, is_full};
use crate::runtime::Deadline;
use crate::semaphore::ledger::Acquisition;

const OUTAGE_PAUSE: Duration = Duration::from_millis(200);

/// Sends a heartbeat. Returns the time of the next heartbeat.
pub(super) async fn beat(core: &Arc<Core>) -> Option<Instant> {
    // Requests without a ticket are left out, because their first acquires are still under way. The
    // requests are sent in the order of their tickets, so a server that was restarted without data
    // queues them in the same order as before.
    let queued = core.ledger.queued();
    let deadline = Deadline::after(core.context.settings.response_timeout);
    let replies = join_all(queued.iter().map(|waiting| ask(core, waiting, deadline))).await;
    let pause = match replies.into_iter().all(|has_reply| has_reply) {
        true => core.ledger.has_waits().then(|| core.context.settings.heartbeat_interval()),
        false => Some(OUTAGE_PAUSE),
    };
    pause.map(|pause| Instant::now() + pause)
}

/// Returns false if the request failed because of an [outage](is_outage).
async fn ask(core: &Arc<Core>, waiting: &Arc<Acquisition>, deadline: Deadline) -> bool {
    let request = Acquire { acquisition: waiting.clone(), if_full: IfFull::Stay };
    match core.ask(request, deadline).await {
        Ok(_) => {}
        Err(error) if is_outage(&error) => {
            tracing::debug!(semaphore = core.name, %error, "a heartbeat failed");
            give_up_after_outage(core, waiting, error);
            return false;
        }
        // The request no longer waits, or a close, a shutdown or the end of the runtime has ended
        // all waits.
        Err(Error::Shutdown) => {}
        Err(error) => waiting.resolve(Err(error)),
    }
    true
}

/// Returns whether the wait continues after the error. A server whose memory or disk is full
/// rejects even heartbeats of queued requests.
fn is_outage(error: &Error) -> bool {
    match error {
        Error::Unavailable { .. } => true,
        Error::Rejected { source, .. } => is_full(source),
        _ => false,
    }
}

/// Ends the wait if the last reply is older than the outage tolerance plus the heartbeat interval.
fn give_up_after_outage(core: &Core, waiting: &Acquisition, error: Error) {
    let settings = &core.context.settings;
    let elapsed = waiting.asked().elapsed();
    if elapsed <= settings.tolerance().saturating_add(settings.heartbeat_interval()) {
        return;
    }
    waiting.resolve(Err(match error {
        Error::Unavailable { semaphore, operation, server, source, .. } => {
            Error::Unavailable { semaphore, operation, server, elapsed, source }
        }
        refused => refused,
    }));
}
