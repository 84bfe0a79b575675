//! A worker: one of the processes that share the semaphore.

use std::time::Duration;

use redis_semaphore::redis::Client;
use redis_semaphore::{Error, Permit, Semaphore};

use crate::demo::Result;
use crate::demo::job::{Job, Progress};
use crate::demo::moment::Moment;
use crate::demo::plan;
use crate::demo::report::{Report, What};
use crate::output::say;
use crate::server::options::Server;
use crate::workers;

pub async fn run(server: &Server, client: Client, name: &str) -> Result<()> {
    let semaphores = plan::connect(server, name).await?;
    let semaphore = plan::database_connections(&semaphores)?;
    let job = Job::open(client, &server.prefix).await?;

    let mut input = workers::input();
    let outcome = tokio::select! {
        outcome = work_off_pages(&semaphore, &job, name) => outcome,
        // Drops whatever goes on: a wait leaves the queue, a permit is given back.
        () = workers::closed(&mut input) => Ok(()),
    };
    // What was dropped is given back in the background; this waits until Redis has it.
    semaphores.shutdown().await;
    outcome
}

async fn work_off_pages(semaphore: &Semaphore, job: &Job, name: &str) -> Result<()> {
    loop {
        match job.progress().await? {
            Progress { done: plan::PAGES, .. } => return Ok(()),
            // The last pages are being worked on. One may come back, if its worker dies.
            Progress { waiting: 0, .. } => tokio::time::sleep(Duration::from_millis(50)).await,
            _ => work_off_one(semaphore, job, name).await?,
        }
    }
}

async fn work_off_one(semaphore: &Semaphore, job: &Job, name: &str) -> Result<()> {
    tell(What::Waits)?;
    let permit = semaphore.acquire().await?;
    tell(What::Holds)?;

    // Should this fail, the permit is dropped, which gives it back as well.
    do_next_page(&permit, job, name).await?;

    // Told before the release: the next holder may start before its answer is here.
    tell(What::Leaves)?;
    // Dropping the permit would do, but this way Redis has it back when the next wait begins, and
    // we hear whether it was still ours.
    match permit.release().await {
        Err(Error::Lost { .. }) => tell(What::Loses),
        released => Ok(released?),
    }
}

async fn do_next_page(permit: &Permit, job: &Job, name: &str) -> Result<()> {
    let Some(page) = job.take_page(name).await? else {
        return Ok(()); // Others took the last ones while this worker waited.
    };
    tell(What::Begins(page))?;

    // Without a permit there must be no work, as somebody else may have the permit. So the work
    // stops as soon as the permit is lost, which happens when Redis is away for too long.
    let finished = tokio::select! {
        finished = do_page(page, permit, job, name) => Some(finished?),
        () = permit.lost() => None,
    };
    match finished {
        Some(true) => tell(What::Finishes(page)),
        Some(false) => tell(What::Repeats(page)),
        None => {
            tell(What::Loses)?;
            match job.put_page_back(name).await? {
                Some(page) => tell(What::PutsBack(page)),
                // It is noted as done after all, only the answer came too late.
                None => tell(What::Finishes(page)),
            }
        }
    }
}

/// Answers whether this was the first time that the page was done.
async fn do_page(page: u32, permit: &Permit, job: &Job, name: &str) -> Result<bool> {
    tokio::time::sleep(plan::time_for(page)).await; // Here you would use the database.
    job.finish_page(page, name, permit.fencing_token()).await
}

/// Reports go to the supervisor through standard output, one a line. When it is gone, this fails.
fn tell(what: What) -> Result<()> {
    Ok(say(Report { at: Moment::now(), what })?)
}
