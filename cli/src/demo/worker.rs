//! A worker: one of the processes that share the semaphore.

use std::time::Duration;

use redis_semaphore::redis::Client;
use redis_semaphore::{Error, Permit, Semaphore};

use crate::demo::Result;
use crate::demo::job::{Job, Progress};
use crate::demo::moment::Moment;
use crate::demo::plan;
use crate::demo::report::{Report, What};
use crate::server::options::Server;
use crate::workers;

pub async fn run(server: &Server, client: Client, name: &str) -> Result<()> {
    let semaphores = plan::connect(server, name).await?;
    let semaphore = plan::database_connections(&semaphores)?;
    let job = Job::open(client, &server.prefix).await?;

    let mut input = workers::input();
    let outcome = tokio::select! {
        outcome = work_off_pages(&semaphore, &job, name) => outcome,
        // Drops the current work: a waiting request leaves the queue, and a permit is released.
        () = workers::closed(&mut input) => Ok(()),
    };
    // A dropped permit is released in the background. `shutdown` waits until Redis has confirmed
    // the release.
    semaphores.shutdown().await;
    outcome
}

async fn work_off_pages(semaphore: &Semaphore, job: &Job, name: &str) -> Result<()> {
    loop {
        match job.progress().await? {
            Progress { done: plan::PAGES, .. } => return Ok(()),
            // Other workers have the last pages. This worker stays, because a page is put back if
            // its worker dies.
            Progress { waiting: 0, .. } => tokio::time::sleep(Duration::from_millis(50)).await,
            _ => work_off_one(semaphore, job, name).await?,
        }
    }
}

async fn work_off_one(semaphore: &Semaphore, job: &Job, name: &str) -> Result<()> {
    report(What::Waits)?;
    let permit = semaphore.acquire().await?;
    report(What::Holds)?;

    // If `do_next_page` fails, the permit is dropped, which also releases it.
    do_next_page(&permit, job, name).await?;

    // This report is sent before the release, because the next holder may start before this worker
    // has the reply to its release.
    report(What::Leaves)?;
    // Dropping the permit would also release it. `release` also waits until Redis has confirmed the
    // release, and reports a lost permit.
    match permit.release().await {
        Err(Error::Lost { .. }) => report(What::Loses),
        released => Ok(released?),
    }
}

async fn do_next_page(permit: &Permit, job: &Job, name: &str) -> Result<()> {
    let Some(page) = job.take_page(name).await? else {
        return Ok(()); // Other workers took the last pages while this worker waited.
    };
    report(What::Begins(page))?;

    // After the loss of the permit, another worker may already have it. So the work stops as soon as
    // the permit is lost, for example because Redis is unavailable for too long.
    let finished = tokio::select! {
        finished = do_page(page, permit, job, name) => Some(finished?),
        () = permit.lost() => None,
    };
    match finished {
        Some(true) => report(What::Finishes(page)),
        Some(false) => report(What::Repeats(page)),
        None => {
            report(What::Loses)?;
            match job.put_page_back(name).await? {
                Some(page) => report(What::PutsBack(page)),
                // The page is recorded as finished. Only the reply was late.
                None => report(What::Finishes(page)),
            }
        }
    }
}

/// Works on the page. Returns `false` if the page was finished before.
async fn do_page(page: u32, permit: &Permit, job: &Job, name: &str) -> Result<bool> {
    tokio::time::sleep(plan::time_for(page)).await; // A real worker uses the database here.
    job.finish_page(page, name, permit.fencing_token()).await
}

/// Reports to the supervisor. Fails if the supervisor has ended.
fn report(what: What) -> Result<()> {
    workers::report(&Report { at: Moment::now(), what })
}
