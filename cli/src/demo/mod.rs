//! `demo`: six processes work off the pages of one job, but never more than three of them at once.
//!
//! Think of a batch job that may use only three database connections, however many processes it
//! runs on. One worker is killed in the middle of a page: its permit, one of
//! three, comes back when its lease ends, and another worker does its page.
//!
//! Read `worker.rs` first: it is what a program looks like that uses the semaphore. `plan.rs` is
//! what all of its processes must agree on. The rest sets the scene and checks what happened.

mod crew;
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

/// Whatever fails here ends up as a message for a person.
type Result<T> = std::result::Result<T, AnyError>;

/// With a role this is one of the workers, which the supervisor has started: its name, and the
/// prefix of the run.
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

/// The pages of the job stand in one server: nothing follows them to another one.
fn only(server: &Server) -> std::result::Result<Client, Failure> {
    single(server)?.ok_or_else(|| {
        Failure::usage("demo: it wants one server: one --url, and neither --cluster nor --sentinel")
    })
}
