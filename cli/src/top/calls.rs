//! Calls Redis, and sends the replies as events.

use std::time::Duration;

use redis_semaphore::{Error, Revoked, SemaphoreClient};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::task::JoinSet;

use crate::failure::Failure;
use crate::limits::with_existing_limit;
use crate::output::report;
use crate::overlap::overlap;
use crate::survey::{PAGE, Summary};
use crate::table::at_most;
use crate::top::event::{Call, Change, Event, Response, Trouble};
use crate::top::look::Look;

pub struct Calls {
    semaphores: SemaphoreClient,
    events: UnboundedSender<Event>,
    changes: JoinSet<()>,
}

impl Calls {
    pub fn new(semaphores: SemaphoreClient, events: UnboundedSender<Event>) -> Self {
        Self { semaphores, events, changes: JoinSet::new() }
    }

    pub fn make(&mut self, call: Call) {
        let (semaphores, events) = (self.semaphores.clone(), self.events.clone());
        let is_change = matches!(call, Call::Change { .. });
        let made = async move {
            let response = make(&semaphores, call).await;
            // The receiver is dropped when this program ends.
            let _ = events.send(Event::Response(response));
        };
        if is_change {
            self.changes.spawn(made);
        } else {
            tokio::spawn(made);
        }
    }

    /// Waits for changes that were requested before the user left, and prints their outcome.
    pub async fn end(mut self, mut coming: UnboundedReceiver<Event>) {
        loop {
            let event = tokio::select! {
                biased;
                event = coming.recv() => event,
                made = self.changes.join_next() => match made {
                    Some(_) => continue,
                    None => return,
                },
            };
            match event {
                Some(Event::Response(Response::Changed { outcome, .. })) => report(outcome),
                Some(Event::Leave) | None => return,
                Some(_) => {}
            }
        }
    }
}

async fn make(semaphores: &SemaphoreClient, call: Call) -> Response {
    match call {
        Call::Names => {
            let found = semaphores.names().await;
            Response::Names(found.map(|found| (found.names, found.elapsed)).map_err(trouble))
        }
        Call::Look { name, whole } => {
            let found = look_at(semaphores, &name, whole).await.map_err(trouble);
            Response::Look { name, whole, found }
        }
        Call::Change { name, change } => {
            let changed = change_it(semaphores, &name, change).await;
            let outcome = changed.unwrap_or_else(|error| Failure::of_change(error).reason);
            Response::Changed { name, outcome }
        }
    }
}

/// Reads one semaphore. Holders and groups are read only if they may be shown.
async fn look_at(semaphores: &SemaphoreClient, name: &str, whole: bool) -> Result<Look, Error> {
    let semaphore = with_existing_limit(semaphores, name)?;
    let (holders, waiters) = if whole { (u64::MAX, u64::MAX) } else { (0, PAGE) };
    let now = semaphore.inspect_range(0..holders, 0..waiters).await?;
    let groups = if whole { semaphore.inspect_groups().await? } else { Vec::new() };
    Ok(Look::new(Summary::of(&semaphore, &now).await?, now, groups))
}

/// Makes the change, and returns its outcome as text.
async fn change_it(
    semaphores: &SemaphoreClient,
    name: &str,
    change: Change,
) -> Result<String, Error> {
    let semaphore = with_existing_limit(semaphores, name)?;
    Ok(match change {
        Change::SetLimit(limit) => {
            semaphore.set_limit(limit).await?;
            format!("{name}: the limit is now {limit} for all processes, until it is cleared.")
        }
        Change::ClearLimit => {
            semaphore.clear_limit().await?;
            format!("{name}: the runtime limit was cleared.")
        }
        Change::Revoke(id) => match semaphore.revoke(&id).await? {
            Revoked::Permit { lease, .. } => revoked(lease),
            Revoked::Request => {
                "The request was removed from the queue. If its process is alive, the request \
                                 returns to its old position with the next heartbeat."
                    .to_owned()
            }
            _ => {
                "Nothing was revoked: the permit or request was released or revoked before, or its \
                  lease expired."
                    .to_owned()
            }
        },
    })
}

fn revoked(lease: Duration) -> String {
    let (usual, longest) = overlap(lease);
    format!(
        "The permit was revoked. A holder that refreshes it finds out within {}, or within {} if it \
         cannot reach Redis.",
        at_most(usual),
        at_most(longest)
    )
}

fn trouble(error: Error) -> Trouble {
    let is_away = match &error {
        Error::Connect { .. } => error.is_transient(),
        Error::Rejected { .. } | Error::Invalid { .. } => false,
        _ => true,
    };
    Trouble { reason: Failure::from(error).reason, is_away }
}
