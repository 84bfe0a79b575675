//! `redis-semaphore`: limits how many commands run at once, on any number of machines.
//!
//! Read `options.rs` first: what may be asked for. `server.rs` connects; each command is a file of
//! its own in `commands/`.
#![forbid(unsafe_code)]

mod commands;
mod failure;
mod options;
mod server;
mod table;

use std::process::ExitCode;

use clap::Parser;

use crate::options::{Command, Options};

fn main() -> ExitCode {
    let Options { server, command } = Options::parse();
    let outcome = match command {
        Command::Completions(asked) => commands::completions::print(&asked),
        Command::Man => commands::man::print(),
        Command::Ls(asked) => commands::ls::run(&server, &asked),
        Command::Inspect(asked) => commands::inspect::run(&server, &asked),
        Command::Limit(asked) => commands::limit::run(&server, &asked),
        Command::Revoke(asked) => commands::revoke::run(&server, &asked),
        Command::Doctor(asked) => commands::doctor::run(&server, &asked),
    };
    outcome.unwrap_or_else(|failure| failure.tell())
}
