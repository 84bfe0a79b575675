//! Asks Redis, and sends what it answers as events.

use std::time::Duration;

use redis_semaphore::{Error, Revoked, Semaphore, Semaphores};
use tokio::sync::mpsc::UnboundedSender;

use crate::failure::Failure;
use crate::overlap::overlap;
use crate::survey::{PAGE, Summary};
use crate::table::at_most;
use crate::top::look::Look;
use crate::top::update::{Answer, Call, Change, Event, Trouble, TroubleKind};

pub struct Calls {
    semaphores: Semaphores,
    events: UnboundedSender<Event>,
}

impl Calls {
    pub fn new(semaphores: Semaphores, events: UnboundedSender<Event>) -> Self {
        Self { semaphores, events }
    }

    pub fn make(&self, call: Call) {
        let (semaphores, events) = (self.semaphores.clone(), self.events.clone());
        tokio::spawn(async move {
            let answer = answer(&semaphores, call).await;
            // Nobody listens any more when this program ends.
            let _ = events.send(Event::Answer(answer));
        });
    }
}

async fn answer(semaphores: &Semaphores, call: Call) -> Answer {
    match call {
        Call::Names => {
            let found = semaphores.names().await;
            Answer::Names(found.map(|found| (found.names, found.took)).map_err(trouble))
        }
        Call::Look { name, whole } => {
            let found = look_at(semaphores, &name, whole).await.map_err(trouble);
            Answer::Look { name, whole, found }
        }
        Call::Change { name, change } => {
            let outcome = change_it(semaphores, &name, change).await.unwrap_or_else(failed);
            Answer::Changed { name, outcome }
        }
    }
}

fn semaphore(semaphores: &Semaphores, name: &str) -> Result<Semaphore, Error> {
    semaphores.semaphore(name).limit_in_force().build()
}

/// Holders are told only where they are seen.
async fn look_at(semaphores: &Semaphores, name: &str, whole: bool) -> Result<Look, Error> {
    let semaphore = semaphore(semaphores, name)?;
    let (holders, waiters) = if whole { (u64::MAX, u64::MAX) } else { (0, PAGE) };
    let now = semaphore.inspect_range(0..holders, 0..waiters).await?;
    Ok(Look::new(Summary::of(&semaphore, &now).await?, now))
}

/// Answers what came of it, for a person.
async fn change_it(semaphores: &Semaphores, name: &str, change: Change) -> Result<String, Error> {
    let semaphore = semaphore(semaphores, name)?;
    Ok(match change {
        Change::SetLimit(limit) => {
            semaphore.set_limit(limit).await?;
            format!("{name}: the limit is {limit} now, for all processes, until it is cleared.")
        }
        Change::ClearLimit => {
            let limit = semaphore.clear_limit().await?;
            format!("{name}: the limit that was set is cleared; {limit} is in force now.")
        }
        Change::Revoke(id) => match semaphore.revoke(&id).await? {
            Revoked::Permit { lease, .. } => revoked(lease),
            Revoked::Request => "It was taken out of the queue. If its process lives, it asks \
                                 again and gets its old place."
                .to_owned(),
            _ => {
                "Nothing was revoked: it was given back before, or its lease had ended.".to_owned()
            }
        },
    })
}

fn failed(error: Error) -> String {
    let may_be_done = matches!(error, Error::Unavailable { .. });
    let reason = Failure::from(error);
    match may_be_done {
        true => format!("It may have been done or not, look again: {reason}"),
        false => format!("Not done: {reason}"),
    }
}

fn revoked(lease: Duration) -> String {
    let (usual, longest) = overlap(lease);
    format!(
        "Revoked. Its holder hears of it within {}, or within {} where it cannot reach Redis.",
        at_most(usual),
        at_most(longest)
    )
}

fn trouble(error: Error) -> Trouble {
    let kind = match &error {
        Error::Connect { .. } if !error.is_transient() => TroubleKind::Lasting,
        Error::Refused { .. } | Error::Invalid { .. } => TroubleKind::One,
        _ => TroubleKind::Away,
    };
    Trouble { reason: Failure::from(error).reason, kind }
}
