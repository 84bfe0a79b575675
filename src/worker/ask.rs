//! Asks again for all that waits, so that the server knows that we are alive, and so that we learn
//! what a lost message would have told.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Done;
use crate::Error;
use crate::calls::{Acquired, How, MAX_BATCH, Otherwise};
use crate::claim::{Claim, Grant};
use crate::client::Shared;
use crate::gate::Gate;
use crate::worker::Task;

const OUTAGE_PAUSE: Duration = Duration::from_millis(200);

pub(super) async fn ask(shared: Arc<Shared>) -> Done {
    let mut again = None;
    for (gate, mut claims) in queued_claims(&shared) {
        // In the order of the queue, so that a server that was restarted empty keeps it.
        claims.sort_by_key(|claim| claim.place().map(|place| place.ticket));
        for batch in claims.chunks(MAX_BATCH) {
            if let Err(error) = ask_batch(&gate, batch).await {
                tracing::debug!(semaphore = gate.name, %error, "asking again failed");
                again = Some(OUTAGE_PAUSE);
            }
        }
    }
    let waits = !shared.waits().is_empty();
    again = again.or(waits.then(|| shared.settings.ask_interval()));
    Done::Asked { again }
}

/// The claims that the server once put in its queue. The others are still being asked for.
fn queued_claims(shared: &Shared) -> Vec<(Arc<Gate>, Vec<Arc<Claim>>)> {
    let mut by_gate: HashMap<*const Gate, (Arc<Gate>, Vec<Arc<Claim>>)> = HashMap::new();
    for claim in shared.waits().values().filter(|claim| claim.place().is_some()) {
        if let Some(gate) = claim.gate() {
            let claims = by_gate.entry(Arc::as_ptr(&gate)).or_insert_with(|| (gate, Vec::new()));
            claims.1.push(claim.clone());
        }
    }
    by_gate.into_values().collect()
}

async fn ask_batch(gate: &Arc<Gate>, claims: &[Arc<Claim>]) -> Result<(), Error> {
    let patience = gate.shared().settings.response_timeout;
    match gate.acquire(claims, Otherwise::Queue, patience).await {
        Ok(answer) => {
            for (claim, acquired) in claims.iter().zip(&answer.reply.requests) {
                heed(gate, claim, *acquired, answer.sent);
            }
            gate.plan_wake(&answer.reply);
            Ok(())
        }
        Err(error @ Error::Unavailable { .. }) => {
            claims.iter().for_each(|claim| give_up_after_outage(gate, claim, &error));
            Err(error)
        }
        // One that can never be granted must not fail its neighbours.
        Err(_) if claims.len() > 1 => {
            for claim in claims {
                Box::pin(ask_batch(gate, std::slice::from_ref(claim))).await?;
            }
            Ok(())
        }
        Err(error) => {
            claims[0].settle(Err(error));
            Ok(())
        }
    }
}

fn heed(gate: &Arc<Gate>, claim: &Arc<Claim>, acquired: Acquired, sent: Instant) {
    if claim.is_over() && !matches!(acquired, Acquired::Refused) {
        // It was given back while we asked: the server may have it anew.
        gate.client.send(Task::Release(gate.clone(), claim.id.clone(), How::Return));
        return;
    }
    match acquired {
        Acquired::Granted { token } => claim.settle(Ok(Grant { token, since: sent })),
        Acquired::Queued(place) => claim.queued(sent, place),
        Acquired::Refused => {}
    }
}

/// A wait survives an outage that is shorter than the tolerance, counted from the last answer.
fn give_up_after_outage(gate: &Gate, claim: &Claim, error: &Error) {
    let settings = &gate.shared().settings;
    let elapsed = claim.asked().elapsed();
    let Error::Unavailable { source, .. } = error else {
        return;
    };
    if elapsed > settings.outage_tolerance + settings.ask_interval() {
        claim.settle(Err(Error::Unavailable {
            semaphore: gate.name.clone(),
            operation: "waiting in the queue",
            elapsed,
            source: source.clone(),
        }));
    }
}
