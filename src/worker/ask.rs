//! Asks again for all that waits, so that the server knows that we are alive, and so that we learn
//! what a lost message would have told.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};

use super::Done;
use crate::Error;
use crate::calls::{AcquireReply, Acquired, How, MAX_BATCH, Otherwise};
use crate::claim::{Claim, Grant};
use crate::client::Shared;
use crate::gate::Gate;
use crate::link::Answer;
use crate::worker::Task;

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
    let mut answered = true;
    for batch in claims.chunks(MAX_BATCH) {
        if let Err(error) = ask_batch(&gate, batch).await {
            tracing::debug!(semaphore = gate.name, %error, "asking again failed");
            answered = false;
        }
    }
    answered
}

/// The claims that the server once put in its queue. The others are still being asked for.
fn queued_claims(shared: &Shared) -> Vec<(Arc<Gate>, Vec<Arc<Claim>>)> {
    let mut by_gate: HashMap<*const Gate, (Arc<Gate>, Vec<Arc<Claim>>)> = HashMap::new();
    for claim in shared.waits().values().filter(|claim| claim.place().is_some() && !claim.is_over())
    {
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
                heed(gate, claim, *acquired, &answer);
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

fn heed(gate: &Arc<Gate>, claim: &Arc<Claim>, acquired: Acquired, answer: &Answer<AcquireReply>) {
    if claim.is_over() && !matches!(acquired, Acquired::Refused) {
        // It was given back while we asked: the server may have it anew.
        gate.client.send(Task::Release(gate.clone(), claim.id.clone(), How::Return));
        return;
    }
    match acquired {
        Acquired::Granted { token } => claim.settle(Ok(Grant { token, since: answer.sent })),
        Acquired::Queued(place) => claim.queued(answer.sent, answer.reply.server_time, place),
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
    if elapsed > settings.outage_tolerance.saturating_add(settings.ask_interval()) {
        claim.settle(Err(Error::Unavailable {
            semaphore: gate.name.clone(),
            operation: "waiting in the queue",
            elapsed,
            source: source.clone(),
        }));
    }
}
