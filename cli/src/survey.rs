//! A look at many semaphores at once, without those who hold them.

use std::collections::BTreeMap;
use std::time::Duration;

use redis_semaphore::{Error, Inspection, Semaphore, SemaphoreClient};
use tokio::task::JoinSet;

use crate::limits::{limit_of, with_existing_limit};

/// Semaphores that are looked at at the same time.
const AT_ONCE: usize = 64;
/// Waiters that are told at once: the first is enough more often than not.
pub const PAGE: u64 = 100;
/// Nobody looks for somebody who is there among more: all may be dead, while all is held.
const MAX_LOOKED_AT: u64 = 10_000;

/// What one semaphore is like.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    /// In force; `None` where nobody has declared or set one.
    pub limit: Option<u32>,
    pub declared: Option<u32>,
    /// Set at run time.
    pub runtime: Option<u32>,
    pub held: u64,
    pub queued: u64,
    /// Of those whose process is there.
    pub longest_wait: Option<Duration>,
}

/// By name. One that the server refuses to tell of is no reason not to show the others.
pub type Summaries = BTreeMap<String, Result<Summary, Error>>;

pub async fn survey(
    semaphores: &SemaphoreClient,
    names: impl IntoIterator<Item = String>,
) -> Result<Summaries, Error> {
    let (mut found, mut looks) = (Summaries::new(), JoinSet::new());
    let mut names = names.into_iter().fuse();
    loop {
        while looks.len() < AT_ONCE
            && let Some(name) = names.next()
        {
            let semaphores = semaphores.clone();
            looks.spawn(async move { (look_at(&semaphores, &name).await, name) });
        }
        let Some(looked) = looks.join_next().await else {
            return Ok(found);
        };
        let (summary, name) = looked.expect("nothing panics there");
        match summary {
            Err(error) if !matches!(error, Error::Rejected { .. }) => return Err(error),
            summary => found.insert(name, summary),
        };
    }
}

async fn look_at(semaphores: &SemaphoreClient, name: &str) -> Result<Summary, Error> {
    let semaphore = with_existing_limit(semaphores, name)?;
    let now = semaphore.inspect_range(0..0, 0..PAGE).await?;
    Summary::of(&semaphore, &now).await
}

impl Summary {
    /// What was found, with the first waiters in it.
    pub async fn of(semaphore: &Semaphore, now: &Inspection) -> Result<Self, Error> {
        Ok(Self {
            limit: limit_of(now),
            declared: now.declared_limit,
            runtime: now.runtime_limit,
            held: now.held,
            queued: now.queued,
            longest_wait: longest_wait(semaphore, now).await?,
        })
    }
}

/// Of the first page on which somebody waits: who came later may be before, by a head start. Whose
/// process has gone waits no longer, though its request is in the queue until its turn comes.
async fn longest_wait(semaphore: &Semaphore, now: &Inspection) -> Result<Option<Duration>, Error> {
    let longest = |page: &Inspection| {
        let present = page.waiters.iter().filter(|waiter| waiter.alive_for.is_some());
        let last = page.waiters.last().map(|last| last.position);
        (present.map(|waiter| waiter.waited).max(), last)
    };
    let mut found = longest(now);
    while let (None, Some(last @ ..MAX_LOOKED_AT)) = found {
        found = longest(&semaphore.inspect_range(0..0, last..last + PAGE).await?);
    }
    Ok(found.0)
}
