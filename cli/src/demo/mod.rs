//! `demo`: six processes work off the pages of one job, but never more than three of them at once.
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

use tokio::runtime::Runtime;

use crate::failure::{Failure, UNAVAILABLE};
use crate::options::{Demo, Server};
use crate::server::refuse_passwords;

/// Whatever fails here ends up as a message for a person.
type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Error>;

pub fn run(server: &Server, asked: &Demo) -> std::result::Result<ExitCode, Failure> {
    refuse_passwords()?;
    let [url] = &server.url[..] else {
        return Err(Failure::usage("--url: the demo wants one server"));
    };
    let runtime = Runtime::new()?;
    let outcome = runtime.block_on(async {
        match &asked.worker[..] {
            // This is how the supervisor starts this program again, once for each worker.
            [name, prefix] => worker::run(url, name, prefix).await.map(|()| ExitCode::SUCCESS),
            _ => supervisor::run(url).await,
        }
    });
    outcome.map_err(|error| {
        let who = asked.worker.first().map(|name| format!("{name}: ")).unwrap_or_default();
        Failure::new(UNAVAILABLE, format!("{who}{error}"))
    })
}
