//! A look at all semaphores.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use redis_semaphore::{Error, Inspection, Semaphore, Semaphores};

use crate::exporter::options::Exporter;
use crate::pattern::is_like;

/// Semaphores that are looked at at the same time.
const AT_ONCE: usize = 64;
/// No semaphore has as many holders, so none of them is told.
const ALL_HOLDERS: u64 = u32::MAX as u64;

#[derive(Debug, Default)]
pub struct Picture {
    pub states: BTreeMap<String, State>,
    /// All keys on the server. `None` where the user may not ask for that.
    pub keys: Option<u64>,
    /// Semaphores that are not in `states`, as there are too many.
    pub over_max: usize,
    /// Semaphores that are not in `states`, as the server refused to tell them.
    pub refused: usize,
}

/// What one semaphore is like.
#[derive(Debug)]
pub struct State {
    /// In force, where there is a limit.
    pub limit: Option<u32>,
    pub declared_limit: Option<u32>,
    pub held: u64,
    pub queued: u64,
    pub longest_wait: Duration,
}

pub async fn look(semaphores: &Semaphores, asked: &Exporter) -> Result<Picture, Error> {
    let found = semaphores.names().await?;
    let is_wanted = |name: &String| asked.only.as_deref().is_none_or(|only| is_like(name, only));
    let mut names: Vec<_> = found.names.into_iter().filter(is_wanted).collect();
    let over_max = names.len().saturating_sub(asked.max);
    names.truncate(asked.max);
    let mut picture = Picture { keys: found.keys, over_max, ..Picture::default() };
    let state = |name: String| {
        let semaphores = semaphores.clone();
        async move { (state_of(&semaphores, &name).await, name) }
    };
    let mut states = stream::iter(names.into_iter().map(state)).buffer_unordered(AT_ONCE);
    while let Some((state, name)) = states.next().await {
        match state {
            Ok(state) => {
                picture.states.insert(name, state);
            }
            // One that cannot be read is no reason not to tell the others.
            Err(Error::Refused { .. }) => picture.refused += 1,
            Err(error) => return Err(error),
        }
    }
    Ok(picture)
}

async fn state_of(semaphores: &Semaphores, name: &str) -> Result<State, Error> {
    let semaphore = semaphores.semaphore(name).limit_in_force().build()?;
    let now = semaphore.inspect_from(ALL_HOLDERS, 0).await?;
    let has_limit = now.declared_limit.or(now.runtime_limit).is_some();
    Ok(State {
        limit: has_limit.then_some(now.limit),
        declared_limit: now.declared_limit,
        held: now.held,
        queued: now.queued,
        longest_wait: longest_wait(&semaphore, now).await?,
    })
}

/// Whose process has gone waits no longer, though its request is in the queue until its turn comes.
async fn longest_wait(semaphore: &Semaphore, mut now: Inspection) -> Result<Duration, Error> {
    loop {
        // Who is further ahead in the queue has waited longer: a head start counts for both.
        if let Some(first) = now.waiters.iter().find(|waiter| waiter.present_for.is_some()) {
            return Ok(first.waited);
        }
        let Some(last) = now.waiters.last() else { return Ok(Duration::ZERO) };
        now = semaphore.inspect_from(ALL_HOLDERS, last.position).await?;
    }
}
