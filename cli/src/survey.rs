//! Reads many semaphores at the same time, without their holders.

use std::collections::BTreeMap;
use std::time::Duration;

use redis_semaphore::{Error, Inspection, Semaphore, SemaphoreClient};
use tokio::task::JoinSet;

use crate::limits::{limit_of, with_existing_limit};

/// How many semaphores are read at the same time.
const AT_ONCE: usize = 64;
/// The number of waiters on one page. The first page usually contains a live waiter.
pub const PAGE: u64 = 100;
/// The search for a live waiter ends after this many waiters. While all permits are held, the queue
/// may contain any number of dead waiters.
const MAX_LOOKED_AT: u64 = 10_000;

/// The state of one semaphore.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    /// The effective limit; `None` if no limit exists.
    pub limit: Option<u32>,
    pub declared: Option<u32>,
    pub runtime: Option<u32>,
    pub held: u64,
    pub queued: u64,
    /// The longest wait among the first requests: see the function `longest_wait`.
    pub longest_wait: Option<Duration>,
}

/// Summaries by name. If the server rejects the call for one semaphore, the other semaphores are
/// still read. Any other error ends the survey.
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
    /// Returns the summary of an inspection that contains the first waiters.
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

/// Returns the longest wait on the first page with a live waiter. A later page may contain a longer
/// wait, because head starts change the order of the queue. A dead waiter does not count, although
/// its request stays in the queue until its turn comes. The requests with a group follow after all
/// others, so their first page is a page of its own.
async fn longest_wait(semaphore: &Semaphore, now: &Inspection) -> Result<Option<Duration>, Error> {
    let without_group = now.queued.saturating_sub(now.queued_in_groups);
    let longest = longest_wait_from(semaphore, page_of(now), without_group).await?;
    if now.queued_in_groups == 0 || now.waiters.len() as u64 == now.queued {
        return Ok(longest);
    }
    let page = semaphore.inspect_range(0..0, without_group..without_group + PAGE).await?;
    let longest_in_groups = longest_wait_from(semaphore, page_of(&page), now.queued).await?;
    Ok(longest.max(longest_in_groups))
}

/// Returns the longest wait of a live waiter on a page, and the last position.
fn page_of(page: &Inspection) -> (Option<Duration>, Option<u64>) {
    let present = page.waiters.iter().filter(|waiter| waiter.alive_for.is_some());
    let last = page.waiters.last().map(|last| last.position);
    (present.map(|waiter| waiter.waited).max(), last)
}

/// Continues on the next pages, up to the position `end`, until a page has a live waiter.
async fn longest_wait_from(
    semaphore: &Semaphore,
    mut found: (Option<Duration>, Option<u64>),
    end: u64,
) -> Result<Option<Duration>, Error> {
    let mut looked_at = 0;
    while let (None, Some(last)) = found
        && last < end
        && looked_at < MAX_LOOKED_AT
    {
        found = page_of(&semaphore.inspect_range(0..0, last..last + PAGE).await?);
        looked_at += PAGE;
    }
    Ok(found.0)
}
