//! Six processes work off the pages of one job, but never more than three of them at once.
//!
//! ```text
//! scripts/with-redis cargo run --release -p quickstart
//! ```
//!
//! Think of a batch job that may use only three database connections, however many processes it
//! runs on. One worker is killed in the middle of a page: its place among the three comes back when
//! its lease ends, and another worker does its page.
//!
//! Read `worker.rs` first: it is what a program looks like that uses the semaphore. `plan.rs` is
//! what all of its processes must agree on. The rest sets the scene and checks what happened.

mod clock;
mod crew;
mod history;
mod job;
mod plan;
mod proof;
mod report;
mod screen;
mod supervisor;
mod timeline;
mod view;
mod worker;

use std::process::ExitCode;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// Whatever fails here ends up as a message for a person.
type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Error>;

const HOW_TO_RUN: &str = "scripts/with-redis cargo run --release -p quickstart";

#[tokio::main]
async fn main() -> ExitCode {
    // Shows what the crate does with RUST_LOG=redis_semaphore=debug. Nothing but reports and the
    // screen may go to standard output.
    let log = std::env::var("RUST_LOG").unwrap_or_default();
    tracing_subscriber::registry()
        .with(tracing_subscriber::fmt::layer().with_writer(std::io::stderr))
        .with(log.parse().unwrap_or(Targets::new()))
        .init();

    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (who, outcome) = match arguments[..] {
        [] => ("quickstart", start_supervisor().await),
        ["--help" | "-h"] => {
            println!("Shows several processes that share a semaphore, one of which is killed.");
            println!("It takes no arguments: {HOW_TO_RUN}");
            ("quickstart", Ok(ExitCode::SUCCESS))
        }
        // This is how the supervisor starts this program again, once for each worker.
        ["worker", name, prefix] => (name, start_worker(name, prefix).await),
        _ => ("quickstart", Err(format!("no arguments, please. Run it with: {HOW_TO_RUN}").into())),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("{who}: {error}");
        ExitCode::FAILURE
    })
}

async fn start_supervisor() -> Result<ExitCode> {
    supervisor::run(&redis_url()?).await
}

async fn start_worker(name: &str, prefix: &str) -> Result<ExitCode> {
    worker::run(&redis_url()?, name, prefix).await?;
    Ok(ExitCode::SUCCESS)
}

fn redis_url() -> Result<String> {
    let missing = "REDIS_URL is not set, so there is no Redis server to use.\n\
                   This starts one just for the run:";
    let url = std::env::var("REDIS_URL").ok().filter(|url| !url.is_empty());
    url.ok_or_else(|| format!("{missing}\n\n    {HOW_TO_RUN}\n").into())
}
