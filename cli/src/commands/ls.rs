//! `ls`: all semaphores, a line for each.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use redis_semaphore::{Error, Names, Semaphores};
use serde::Serialize;
use serde_json::json;
use tokio::task::JoinSet;

use super::limit_of;
use crate::failure::{Failure, NO};
use crate::options::{Ls, Server};
use crate::pattern::is_like;
use crate::server::looking;
use crate::table::{millis, or_none, rounded, table};

/// Semaphores that are looked at at the same time.
const AT_ONCE: usize = 64;
/// No semaphore has as many holders, so none of them is told.
const ALL_HOLDERS: u64 = u32::MAX as u64;

#[derive(Serialize)]
struct Row {
    name: String,
    limit: Option<u32>,
    held: u64,
    queued: u64,
    longest_wait_ms: Option<u64>,
}

type Rows = BTreeMap<String, Result<Row, Error>>;

pub fn run(server: &Server, asked: &Ls) -> Result<ExitCode, Failure> {
    let (found, rows) = looking(server, async |semaphores: &Semaphores| {
        let found = semaphores.names().await?;
        let is_wanted = |name: &&String| match &asked.pattern {
            Some(pattern) => is_like(name, pattern),
            None => true,
        };
        let names = found.names.iter().filter(is_wanted).cloned();
        let rows = look_at(semaphores, names).await?;
        Ok::<_, Error>((found, rows))
    })?;
    let shown: Vec<&Row> = rows.values().flatten().collect();
    match asked.json {
        true => println!("{}", as_json(&found, &shown)),
        false => println!("{}", as_text(&shown)),
    }
    say_what_it_took(&found, rows.len());
    let mut status = ExitCode::SUCCESS;
    for (name, row) in &rows {
        if let Err(error) = row {
            Failure::from_error_about(name, error).tell();
            status = ExitCode::from(NO);
        }
    }
    Ok(status)
}

/// A semaphore that cannot be read is no reason not to show the others.
async fn look_at(
    semaphores: &Semaphores,
    names: impl Iterator<Item = String>,
) -> Result<Rows, Error> {
    let (mut rows, mut looks) = (Rows::new(), JoinSet::new());
    let mut names = names.fuse();
    loop {
        while looks.len() < AT_ONCE
            && let Some(name) = names.next()
        {
            let semaphores = semaphores.clone();
            looks.spawn(async move { (name.clone(), row_of(&semaphores, name).await) });
        }
        let Some(looked) = looks.join_next().await else {
            return Ok(rows);
        };
        let (name, row) = looked.expect("nothing panics there");
        match row {
            Err(error) if !matches!(error, Error::Refused { .. }) => return Err(error),
            row => rows.insert(name, row),
        };
    }
}

async fn row_of(semaphores: &Semaphores, name: String) -> Result<Row, Error> {
    let semaphore = semaphores.semaphore(&*name).limit_in_force().build()?;
    let now = semaphore.inspect_from(ALL_HOLDERS, 0).await?;
    // The head has the oldest ticket.
    let longest_wait_ms = now.waiters.first().map(|head| millis(head.waited));
    let (limit, held, queued) = (limit_of(&now), now.held, now.queued);
    Ok(Row { name, limit, held, queued, longest_wait_ms })
}

fn as_json(found: &Names, rows: &[&Row]) -> serde_json::Value {
    json!({ "semaphores": rows, "keys": found.keys, "took_ms": millis(found.took) })
}

fn as_text(rows: &[&Row]) -> String {
    let cells = |row: &&Row| {
        let wait = row.longest_wait_ms.map(|ms| rounded(Duration::from_millis(ms)));
        vec![
            row.name.clone(),
            format!("{}/{}", row.held, or_none(row.limit)),
            row.queued.to_string(),
            wait.unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = rows.iter().map(cells).collect();
    table(&["NAME", "HELD/LIMIT", "QUEUED", "LONGEST WAIT"], &rows)
}

fn say_what_it_took(found: &Names, shown: usize) {
    let keys = match found.keys {
        Some(keys) => format!("{keys} keys looked at"),
        None => "the user may not ask how many keys were looked at (+dbsize)".to_owned(),
    };
    let (all, seconds) = (found.names.len(), found.took.as_secs_f64());
    eprintln!("{shown} of {all} semaphores; {keys} in {seconds:.3} s");
}
