//! From the options to a permit.

use std::io::{IsTerminal, stderr};
use std::pin::pin;
use std::time::Duration;

use redis_semaphore::{Error, Permit, Semaphore, Semaphores};
use tokio::time::timeout;

use super::options::Run;
use super::outages;
use super::times::Times;
use crate::failure::{Failure, NO_PERMIT, UNAVAILABLE};
use crate::limits::{limit_of, with_limit};
use crate::output::note;

/// After so long somebody at a terminal wonders.
const SILENCE: Duration = Duration::from_secs(1);

pub async fn acquire(
    semaphores: &Semaphores,
    asked: &Run,
    times: &Times,
) -> Result<Permit, Failure> {
    let builder = semaphores.semaphore(&asked.name).lease(asked.lease);
    let semaphore = with_limit(builder, asked.limit)?;
    match asked.limit {
        Some(limit) => tell_other_limit(&semaphore, limit).await?,
        None if asked.weight > 1 && asked.waits() => {
            tell_low_limit(&semaphore, asked.weight).await?
        }
        None => {}
    }
    let permit = wait(&semaphore, asked).await?;
    // One that waited has used up some of its lease.
    if !times.is_fresh(&permit) {
        permit.refresh().await?;
    }
    Ok(permit)
}

async fn wait(semaphore: &Semaphore, asked: &Run) -> Result<Permit, Failure> {
    let request = semaphore.request().weight(asked.weight).ahead(asked.ahead);
    let permit = match asked.timeout {
        _ if !asked.waits() => request.try_acquire().await.transpose(),
        Some(timeout) => Some(told(semaphore, request.timeout(timeout).acquire()).await),
        None => Some(told(semaphore, request.acquire()).await),
    };
    match permit {
        Some(Err(error @ Error::NoLimit { .. })) => {
            Err(Failure::usage(format!("{error}: --limit N declares one")))
        }
        // Whoever takes 75 for "others are at it" would not notice for days.
        Some(Err(Error::Timeout { position, .. })) if position.is_none() || outages::is_away() => {
            let reason = format!("semaphore {}: no permit: Redis does not answer", asked.name);
            Err(Failure::new(UNAVAILABLE, reason))
        }
        Some(permit) => Ok(permit?),
        None => {
            let reason = format!(
                "semaphore {}: no permit is free, others wait, or the limit is 0",
                asked.name
            );
            Err(Failure::new(NO_PERMIT, reason))
        }
    }
}

/// A wait of which a person is told. A log would have a line for each run.
async fn told<T>(semaphore: &Semaphore, waiting: impl Future<Output = T>) -> T {
    let mut waiting = pin!(waiting);
    if stderr().is_terminal() {
        if let Ok(done) = timeout(SILENCE, &mut waiting).await {
            return done;
        }
        let name = semaphore.name();
        note(format_args!(
            "waiting for a permit of {name}: `redis-semaphore inspect {name}` shows \
             who holds them"
        ));
    }
    waiting.await
}

/// A limit that differs from the one in force is a mistake more often than not. It is told before
/// anything is declared: the wait may be long.
async fn tell_other_limit(semaphore: &Semaphore, declared: u32) -> Result<(), Error> {
    let now = semaphore.inspect_range(0..0, 0..0).await?;
    let Some(in_force) = limit_of(&now).filter(|limit| *limit != declared) else {
        return Ok(());
    };
    let name = semaphore.name();
    match now.runtime_limit {
        Some(_) => note(format_args!(
            "semaphore {name}: {in_force}, set at run time, is in force: --limit \
             {declared} counts when that is cleared"
        )),
        None => note(format_args!(
            "semaphore {name}: {in_force} is in force: --limit {declared} declares \
             another limit, for everyone"
        )),
    }
    Ok(())
}

/// What weighs more than a limit that was set at run time may wait for ever. With more than is declared
/// it does not wait at all.
async fn tell_low_limit(semaphore: &Semaphore, weight: u32) -> Result<(), Error> {
    let now = semaphore.inspect_range(0..0, 0..0).await?;
    if let Some(limit) = now.runtime_limit.filter(|limit| *limit < weight)
        && now.declared_limit.is_none_or(|declared| declared >= weight)
    {
        note(format_args!(
            "semaphore {}: --weight {weight} waits until the limit is raised: {limit}, \
             set at run time, is in force",
            semaphore.name()
        ));
    }
    Ok(())
}
