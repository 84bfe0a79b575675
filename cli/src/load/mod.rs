//! `load`: what will a semaphore do under your load? This finds out, on a real server, which should
//! be the one that it is going to be, at the same distance.
//!
//! Read `turns.rs` first: what a task does. `worker.rs` is a process with many of them, `run.rs`
//! the process that starts, times and merges these, and `summary.rs` what comes of it.

mod clock;
mod crew;
mod hold;
mod messages;
pub mod options;
mod progress;
mod run;
mod statistics;
mod summary;
mod sweep;
mod table;
mod turns;
mod worker;

use std::io::Write;
use std::process::ExitCode;

use crate::failure::{Failure, UNAVAILABLE};
use crate::load::options::Load;
use crate::options::Server;

/// Whatever fails here ends up as a message for a person.
type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Error>;

pub fn run(server: &Server, asked: &Load) -> std::result::Result<ExitCode, Failure> {
    asked.check()?;
    let outcome = tokio::runtime::Runtime::new()?.block_on(async {
        match asked.worker {
            true => worker::run(server).await.map(|()| ExitCode::SUCCESS),
            false => measure(server, asked).await,
        }
    });
    outcome.map_err(|error| match error.downcast::<redis_semaphore::Error>() {
        Ok(error) => Failure::from(*error),
        Err(error) => match error.downcast::<Failure>() {
            Ok(failure) => *failure,
            Err(error) => Failure::new(UNAVAILABLE, error),
        },
    })
}

async fn measure(server: &Server, asked: &Load) -> Result<ExitCode> {
    let summary = run::run(server, asked).await?;
    let text = if asked.json { serde_json::to_string(&summary)? } else { table::draw(&summary) };
    writeln!(std::io::stdout(), "{text}")?;
    let is_kept = summary.max_held <= u64::from(asked.limit);
    Ok(if is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
