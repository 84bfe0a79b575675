//! Says what endangers the semaphores on a server: for people, and for a check at a deployment.
//!
//! `REDIS_URL=redis://... cargo run --example doctor`
//!
//! Exit status: 1 when there is a danger, 2 when the server could not be examined, else 0.

use std::process::ExitCode;

use redis_semaphore::{Error, Finding, Semaphores, Severity};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let findings = match examine().await {
        Ok(findings) => findings,
        Err(error) => {
            eprintln!("doctor: {error}");
            return ExitCode::from(2);
        }
    };
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!("nothing was found that endangers a semaphore");
    }
    match findings.iter().any(|finding| finding.severity == Severity::Danger) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

async fn examine() -> Result<Vec<Finding>, Error> {
    let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1/".to_owned());
    Semaphores::connect(&url).await?.doctor().await
}
