//! Says what endangers the semaphores on a server: for people, and for a check at a deployment.
//!
//! `REDIS_URL=redis://... cargo run --example doctor`

use std::process::ExitCode;

use clap::Parser;
use redis_semaphore::{Diagnosis, Error, Semaphores, Verdict};

const ABOUT: &str = "\
Looks at the server that REDIS_URL names (default: redis://127.0.0.1/) for what endangers the
semaphores on it, and shows each check: what was found, and what mends it.

A command that mends something is for redis-cli; CONFIG REWRITE keeps what CONFIG SET has changed.";

const STATUS: &str = "\
Exit status:
  0  no danger
  1  there is a danger
  2  the server could not be looked at, or an argument is wrong";

#[derive(Parser)]
#[command(name = "doctor", about = ABOUT, after_help = STATUS)]
struct Options {}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Options {} = Options::parse();
    let diagnosis = match examine().await {
        Ok(diagnosis) => diagnosis,
        Err(error) => {
            eprintln!("doctor: {error}");
            return ExitCode::from(2);
        }
    };
    println!("{diagnosis}");
    match diagnosis.worst() {
        Verdict::Danger => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

async fn examine() -> Result<Diagnosis, Error> {
    let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1/".to_owned());
    Semaphores::connect(&url).await?.doctor().await
}
