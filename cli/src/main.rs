//! `redis-semaphore`: limits how many commands run at once, on any number of machines.
//!
//! Read `options.rs` first: what may be asked for. `server.rs` connects; each command is a file of
//! its own in `commands/`.
#![forbid(unsafe_code)]

mod commands;
mod demo;
#[cfg(feature = "exporter")]
mod exporter;
mod failure;
mod load;
mod options;
#[cfg(feature = "exporter")]
mod pattern;
mod server;

use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

use crate::options::{Command, Options};

fn main() -> ExitCode {
    let Options { server, command } = Options::parse();
    start_log();
    let outcome = match command {
        Command::Completions(asked) => commands::completions::print(&asked),
        Command::Man => commands::man::print(),
        Command::Demo(asked) => demo::run(&server, &asked),
        Command::Load(asked) => load::run(&server, &asked),
        #[cfg(feature = "exporter")]
        Command::Exporter(asked) => exporter::run(server, asked),
        Command::Doctor(asked) => commands::doctor::run(&server, &asked),
    };
    outcome.unwrap_or_else(|failure| failure.tell())
}

/// Shows what the library does with RUST_LOG=redis_semaphore=debug. Standard output is for answers.
fn start_log() {
    let log = std::env::var("RUST_LOG").unwrap_or_default();
    tracing_subscriber::registry()
        .with(tracing_subscriber::fmt::layer().with_writer(std::io::stderr))
        .with(log.parse().unwrap_or(Targets::new()))
        .init();
}
