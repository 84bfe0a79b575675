//! `load`: measures a semaphore under your load, on a real server. Use the server of your
//! production system, or a server at the same network distance.
//!
//! Read `turns.rs` first: it defines a task. `worker.rs` is a process with many tasks. `run.rs` is
//! the process that starts the workers, sets the end of the run and merges the reports.
//! `summary.rs` computes the results.

mod groups;
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

use std::io::stdout;
use std::process::ExitCode;

use tokio::runtime::Builder;

use crate::failure::{AnyError, Failure};
use crate::load::options::Load;
use crate::output::{say_json, write};
use crate::paint::Paint;
use crate::server::block_on_runtime;
use crate::server::options::Server;

/// Every error of `load` is printed as a message for the user.
type Result<T> = std::result::Result<T, AnyError>;

/// Runs this process as a worker, or starts the workers.
pub fn run(
    server: &Server,
    asked: &Load,
    is_worker: bool,
) -> std::result::Result<ExitCode, Failure> {
    asked.check()?;
    Ok(block_on_runtime(&mut Builder::new_multi_thread(), async {
        match is_worker {
            true => worker::run(server).await.map(|()| ExitCode::SUCCESS),
            false => measure(server, asked).await,
        }
    })??)
}

async fn measure(server: &Server, asked: &Load) -> Result<ExitCode> {
    let summary = run::run(server, asked).await?;
    match asked.json {
        true => say_json(&summary)?,
        false => write(format!("{}\n", table::draw(&summary, Paint::on(&stdout()))).as_bytes())?,
    }
    Ok(if summary.is_kept() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
