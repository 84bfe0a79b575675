//! Asks again for all that waits, so that the server knows that we are alive, and so that we learn
//! what a lost message would have told.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};

use super::Done;
use crate::error::{Error, says};
use crate::semaphore::claim::Claim;
use crate::semaphore::gate::Gate;
use crate::semaphore::requests::{Acquire, Otherwise};
use crate::semaphore::shared::Shared;

const OUTAGE_PAUSE: Duration = Duration::from_millis(200);
/// Calls under way at the same time.
const AT_ONCE: usize = 64;

pub(super) async fn ask(shared: Arc<Shared>) -> Done {
    // Several semaphores at once: one that is slow must not make the others' waits look dead.
    let asked = stream::iter(queued_claims(&shared))
        .map(|(gate, claims)| ask_gate(gate, claims))
        .buffer_unordered(AT_ONCE);
    let all_answered = asked.fold(true, async |all, answered| all && answered).await;
    let waits = !shared.waits().is_empty();
    let again = match all_answered {
        true => waits.then(|| shared.settings.ask_interval()),
        false => Some(OUTAGE_PAUSE),
    };
    Done::Asked { again }
}

/// Whether there was an answer.
async fn ask_gate(gate: Arc<Gate>, mut claims: Vec<Arc<Claim>>) -> bool {
    // In the order of the queue, so that a server that was restarted empty keeps it.
    claims.sort_by_key(|claim| claim.place().map(|place| place.ticket));
    join_all(claims.iter().map(|claim| ask_one(&gate, claim))).await.into_iter().all(|done| done)
}

/// The claims that the server once put in its queue. The others are still being asked for.
fn queued_claims(shared: &Shared) -> Vec<(Arc<Gate>, Vec<Arc<Claim>>)> {
    let mut by_gate: HashMap<*const Gate, (Arc<Gate>, Vec<Arc<Claim>>)> = HashMap::new();
    for claim in shared.waits().values().filter(|claim| claim.place().is_some() && !claim.is_over())
    {
        let gate = &claim.gate;
        let (_, claims) =
            by_gate.entry(Arc::as_ptr(gate)).or_insert_with(|| (gate.clone(), Vec::new()));
        claims.push(claim.clone());
    }
    by_gate.into_values().collect()
}

/// Whether there was an answer.
async fn ask_one(gate: &Arc<Gate>, claim: &Arc<Claim>) -> bool {
    let request = Acquire { claim: claim.clone(), otherwise: Otherwise::Stay };
    match gate.ask_along(request, gate.shared().settings.response_timeout).await {
        Ok(_) => {}
        Err(error) if is_outage(&error) => {
            tracing::debug!(semaphore = gate.name, %error, "asking again failed");
            give_up_after_outage(gate, claim, error);
            return false;
        }
        // It waits no longer, or the worker has ended, which tells all that wait.
        Err(Error::Shutdown) => {}
        Err(error) => claim.settle(Err(error)),
    }
    true
}

/// Whether a wait may outlast it. A server whose memory is full refuses even what it knows already.
fn is_outage(error: &Error) -> bool {
    match error {
        Error::Unavailable { .. } => true,
        Error::Refused { source, .. } => says(source, "OOM"),
        _ => false,
    }
}

/// A wait survives an outage that is shorter than the tolerance, counted from the last answer.
fn give_up_after_outage(gate: &Gate, claim: &Claim, error: Error) {
    let settings = &gate.shared().settings;
    let elapsed = claim.asked().elapsed();
    if elapsed <= settings.outage_tolerance.saturating_add(settings.ask_interval()) {
        return;
    }
    claim.settle(Err(match error {
        Error::Unavailable { semaphore, operation, source, .. } => {
            Error::Unavailable { semaphore, operation, elapsed, source }
        }
        refused => refused,
    }));
}
