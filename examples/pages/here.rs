//! A page under a permit of this crate.

use std::time::Instant;

use redis_semaphore::Semaphores;

use crate::database::Database;
use crate::report::Report;
use crate::start::{self, Result};

pub async fn query(database: &Database, page: u32, name: &str, limit: u32) -> Result<Report> {
    let asked = Instant::now();
    let semaphores = Semaphores::connect(&start::redis_url()?).await?;
    let semaphore = semaphores.semaphore(name).limit(limit).build()?;

    let permit = semaphore.acquire().await?;
    let report = tokio::select! {
        report = Report::of_query(database, page, asked) => report?,
        () = permit.lost() => return Err("the permit was lost, so the query was stopped".into()),
    };
    permit.release().await?;
    Ok(report)
}
