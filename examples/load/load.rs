//! What will a semaphore do under your load? This finds out, on a real server.
//!
//! ```text
//! scripts/with-redis cargo run --release --example load -- --limit 10 --tasks 1000 --processes 4
//! ```
//!
//! `--help` tells what can be set and what is measured. The server should be the one that it is
//! going to be, at the same distance: `--url`, or `REDIS_URL`.
//!
//! Read `turns.rs` first: what a task does. `worker.rs` is a process with many of them, `run.rs`
//! the process that starts, times and merges these, and `summary.rs` what comes of it.

mod clock;
mod crew;
mod hold;
mod messages;
mod options;
mod progress;
mod run;
mod server;
mod summary;
mod sweep;
mod table;
mod turns;
mod worker;

use std::io::Write;
use std::process::ExitCode;

use options::Options;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// Whatever fails here ends up as a message for a person.
type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Error>;

/// How this program starts itself again, for each of the processes.
const WORKER: &str = "worker";

const TOO_MANY_HELD: u8 = 1;
const COULD_NOT_RUN: u8 = 3; // 2 is for wrong arguments.

#[tokio::main]
async fn main() -> ExitCode {
    // Shows what the crate does with RUST_LOG=redis_semaphore=debug.
    let log = std::env::var("RUST_LOG").unwrap_or_default();
    tracing_subscriber::registry()
        .with(tracing_subscriber::fmt::layer().with_writer(std::io::stderr))
        .with(log.parse().unwrap_or(Targets::new()))
        .init();

    let outcome = match std::env::args().nth(1) {
        Some(word) if word == WORKER => worker::run().await.map(|()| ExitCode::SUCCESS),
        _ => measure(&Options::read()).await,
    };
    outcome.unwrap_or_else(|error| {
        if let Some(error @ redis_semaphore::Error::Invalid { .. }) = error.downcast_ref() {
            options::refuse(error); // The crate knows best what a name may be.
        }
        eprintln!("load: {error}");
        ExitCode::from(COULD_NOT_RUN)
    })
}

async fn measure(options: &Options) -> Result<ExitCode> {
    let summary = run::run(options).await?;
    let text = if options.json { serde_json::to_string(&summary)? } else { table::draw(&summary) };
    writeln!(std::io::stdout(), "{text}")?;
    let is_kept = summary.max_held <= u64::from(options.limit);
    Ok(if is_kept { ExitCode::SUCCESS } else { ExitCode::from(TOO_MANY_HELD) })
}
