//! A look at many semaphores at once, without those who hold them.

use std::collections::BTreeMap;
use std::time::Duration;

use redis_semaphore::{Error, Inspection, Semaphore, Semaphores};
use tokio::task::JoinSet;

/// Semaphores that are looked at at the same time.
const AT_ONCE: usize = 64;
/// From there on nobody is told: no semaphore has as many holders or waiters.
pub const NOBODY: u64 = u32::MAX as u64;

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
    semaphores: &Semaphores,
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
            Err(error) if !matches!(error, Error::Refused { .. }) => return Err(error),
            summary => found.insert(name, summary),
        };
    }
}

async fn look_at(semaphores: &Semaphores, name: &str) -> Result<Summary, Error> {
    let semaphore = semaphores.semaphore(name).limit_in_force().build()?;
    let now = semaphore.inspect_from(NOBODY, 0).await?;
    Summary::of(&semaphore, &now).await
}

impl Summary {
    /// What was found, with the first of the waiters in it.
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

/// The limit in force, where there is one.
pub fn limit_of(now: &Inspection) -> Option<u32> {
    now.declared_limit.or(now.runtime_limit).map(|_| now.limit)
}

/// Whose process has gone waits no longer, though its request is in the queue until its turn comes.
async fn longest_wait(semaphore: &Semaphore, now: &Inspection) -> Result<Option<Duration>, Error> {
    // Who is further ahead in the queue has waited longer: a head start counts for both.
    let of_first = |page: &Inspection| {
        let first = page.waiters.iter().find(|waiter| waiter.present_for.is_some());
        (first.map(|first| first.waited), page.waiters.last().map(|last| last.position))
    };
    let mut found = of_first(now);
    while let (None, Some(last)) = found {
        found = of_first(&semaphore.inspect_from(NOBODY, last).await?);
    }
    Ok(found.0)
}
