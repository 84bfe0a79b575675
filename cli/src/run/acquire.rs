//! Acquires the permit that the options describe.

use std::io::{IsTerminal, stderr};
use std::pin::pin;
use std::time::{Duration, Instant};

use humantime::format_duration;
use redis_semaphore::{Error, Permit, Semaphore, SemaphoreClient};
use tokio::time::{sleep, timeout};

use super::options::Run;
use super::outages;
use super::times::Times;
use crate::failure::{Failure, NO_PERMIT, UNAVAILABLE};
use crate::limits::{limit_of, with_limit};
use crate::output::note;

/// The wait after which a note appears on a terminal.
const SILENCE: Duration = Duration::from_secs(1);
const UNTIL_NEXT_TRY: Duration = Duration::from_millis(200);
/// If less time than this is left, the request is not repeated.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

pub async fn acquire(
    client: &SemaphoreClient,
    asked: &Run,
    times: &Times,
    began: Instant,
) -> Result<Permit, Failure> {
    let builder = client.semaphore(&asked.name).lease(asked.permit_lease());
    let semaphore = with_limit(builder, asked.limit)?;
    let noted = timeout(asked.time_for_notes(began), report_limits(&semaphore, asked)).await;
    match noted {
        Ok(Ok(())) => {}
        // The following request is retried after transient errors.
        Ok(Err(error)) if error.is_transient() && asked.waits() => {}
        Ok(Err(error)) => return Err(error.into()),
        Err(_) => {
            let reason = outages::reason().unwrap_or_else(|| "no reply from Redis".to_owned());
            let (name, time) = (&asked.name, format_duration(asked.patience()));
            let reason = format!(
                "semaphore {name}: no permit within {time} (no queue position is known): {reason}"
            );
            return Err(Failure::new(UNAVAILABLE, reason));
        }
    }
    let permit = wait(&semaphore, asked, began).await?;
    // After a wait, part of the lease may already have passed.
    if !times.is_fresh(&permit) {
        permit.refresh().await?;
    }
    Ok(permit)
}

async fn wait(semaphore: &Semaphore, asked: &Run, began: Instant) -> Result<Permit, Failure> {
    let permit = loop {
        let permit = attempt(semaphore, asked, began).await;
        let is_full = matches!(&permit, Some(Err(error)) if is_full(error));
        let left = asked.patience().saturating_sub(began.elapsed());
        if !is_full || left < SHORTEST_PAUSE {
            break permit;
        }
        // A server whose memory or disk is full rejects new requests, so this request is sent
        // again. Earlier requests stay in the queue.
        sleep(UNTIL_NEXT_TRY.min(left / 2)).await;
    };
    match permit {
        Some(Err(Error::NoLimit { .. })) => Err(Failure::usage(format!(
            "semaphore {}: no limit exists: declare one with --limit N",
            asked.name
        ))),
        Some(Err(mut error)) => {
            let mut is_outage = false;
            if let Error::Timeout { waited, position, outage, .. } = &mut error {
                // Connecting used a part of `--timeout`, and the request had the rest. The message
                // shows all of `--timeout`.
                *waited = asked.timeout.unwrap_or(*waited);
                is_outage = outage.is_some() || position.is_none();
            }
            let failure = Failure::from(error);
            // Exit status 75 would suggest that all permits are held, and could hide an outage for
            // days.
            let status = if is_outage { UNAVAILABLE } else { failure.status };
            Err(Failure { status, ..failure })
        }
        Some(Ok(permit)) => Ok(permit),
        None => {
            let (at_cap, groups) = match asked.group.group() {
                Some(_) => ("the group is at its cap, ", " --groups"),
                None => Default::default(),
            };
            let reason = format!(
                "semaphore {0}: no permit is available, because all are held, other requests \
                 wait, {at_cap}or the limit is below the weight: `redis-semaphore inspect \
                 {0}{groups}` shows which",
                asked.name
            );
            Err(Failure::new(NO_PERMIT, reason))
        }
    }
}

async fn attempt(
    semaphore: &Semaphore,
    asked: &Run,
    began: Instant,
) -> Option<Result<Permit, Error>> {
    let request = semaphore.request().weight(asked.weight).head_start(asked.head_start);
    let request = match asked.group.group() {
        Some(group) => request.group(group),
        None => request,
    };
    // Connecting may have used up the whole timeout.
    let left = asked.timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
    match left {
        // With a timeout of zero, the library ignores the head start.
        _ if !asked.waits() || left == Some(Duration::ZERO) => {
            request.try_acquire().await.transpose()
        }
        Some(timeout) => Some(with_note(semaphore, request.timeout(timeout).acquire()).await),
        None => Some(with_note(semaphore, request.acquire()).await),
    }
}

/// Returns whether the server's memory or disk is full.
fn is_full(error: &Error) -> bool {
    let Error::Rejected { source, .. } = error else { return false };
    let text = source.to_string();
    ["OOM", "MISCONF"]
        .iter()
        .any(|code| source.code() == Some(code) || text.contains(&format!("-{code} ")))
}

/// Waits, and prints a note on a terminal if the wait is long. A log gets no note, because every
/// run that waits would add a note.
async fn with_note<T>(semaphore: &Semaphore, waiting: impl Future<Output = T>) -> T {
    let mut waiting = pin!(waiting);
    if stderr().is_terminal() {
        if let Ok(done) = timeout(SILENCE, &mut waiting).await {
            return done;
        }
        let name = semaphore.name();
        note(format_args!(
            "semaphore {name}: waiting for a permit; `redis-semaphore inspect {name}` shows the \
             holders"
        ));
    }
    waiting.await
}

/// Prints notes if the limits of the semaphore are probably not as the user expects: if `--limit`
/// differs from the effective limit, and if the wait may last forever. The notes are printed before
/// the limit is declared, because the wait may be long.
async fn report_limits(semaphore: &Semaphore, asked: &Run) -> Result<(), Error> {
    if asked.limit.is_none() && asked.weight == 1 {
        return Ok(());
    }
    let now = semaphore.inspect_range(0..0, 0..0).await?;
    let (name, weight) = (semaphore.name(), asked.weight);
    let differs = |declared: &u32| limit_of(&now).is_some_and(|limit| limit != *declared);
    let declared = asked.limit.filter(differs);
    match (now.runtime_limit, declared) {
        (Some(limit), Some(declared)) => note(format_args!(
            "semaphore {name}: the runtime limit {limit} applies; --limit {declared} applies after \
             `redis-semaphore limit {name} clear`"
        )),
        // A request that is heavier than its own limit fails, and declares nothing.
        (None, Some(declared)) if weight <= declared => note(format_args!(
            "semaphore {name}: --limit {declared} replaces the limit {} for all processes",
            now.limit
        )),
        _ => {}
    }
    // Without a runtime limit, a request that is too heavy fails.
    if let Some(limit) = now.runtime_limit.filter(|limit| *limit < weight && asked.waits()) {
        note(format_args!(
            "semaphore {name}: --weight {weight} exceeds the runtime limit {limit}: the command \
             waits until the limit is raised"
        ));
    }
    Ok(())
}
