//! `demo`: six processes work on the pages of one job, but never more than three of them at the
//! same time.
//!
//! Imagine a batch job with any number of processes, which together may use only three database
//! connections. One worker is killed in the middle of a page. The killed worker's permit, one of
//! three, is free when the lease expires. Another worker finishes the page.
//!
//! Read `worker.rs` first: it is written like a program that uses the semaphore. `plan.rs` defines
//! the semaphore and the job for all processes. The other files run the workers, and show and check
//! the job.

mod history;
mod job;
mod moment;
mod plan;
mod proof;
mod report;
mod screen;
mod supervisor;
mod timeline;
mod view;
mod worker;

use std::process::ExitCode;

use redis_semaphore::redis::Client;

use crate::failure::{AnyError, Failure};
use crate::server::options::Server;
use crate::server::{block_on, single};

/// Every error of the demo is printed as a message for the user.
type Result<T> = std::result::Result<T, AnyError>;

/// Runs a worker if there is a role, and the supervisor otherwise. The role contains the name of
/// the worker and the prefix of the run.
pub fn run(server: Server, role: Option<String>) -> std::result::Result<ExitCode, Failure> {
    let client = only(&server)?;
    match role.as_deref().and_then(|role| role.split_once(' ')) {
        None => Ok(block_on(supervisor::run(server, client))??),
        Some((name, prefix)) => {
            let server = Server { prefix: prefix.to_owned(), ..server };
            let worked = block_on(worker::run(&server, client, name))?.map_err(Failure::from);
            let named = |failure: Failure| {
                Failure::new(failure.status, format_args!("{name}: {}", failure.reason))
            };
            worked.map(|()| ExitCode::SUCCESS).map_err(named)
        }
    }
}

/// Returns a client for the server that the options name. Fails if the options name several
/// servers, because the pages of the job cannot move to another server.
fn only(server: &Server) -> std::result::Result<Client, Failure> {
    single(server)?.ok_or_else(|| {
        Failure::usage(
            "demo needs a single server: use one --url, and neither --cluster nor --sentinel",
        )
    })
}
