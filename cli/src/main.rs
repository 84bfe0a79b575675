//! `redis-semaphore`: limits how many commands run at once, on any number of machines.
//!
//! Read `options.rs` first: what may be asked for. `server.rs` connects; each command is a file of
//! its own in `commands/`, but for the largest, `run`, which is a folder.
#![forbid(unsafe_code)]

mod commands;
mod failure;
mod options;
mod run;
mod server;

use std::process::ExitCode;

use clap::Parser;

use crate::options::{Command, Options};

fn main() -> ExitCode {
    let Options { server, command } = Options::parse();
    let outcome = match command {
        Command::Completions(asked) => commands::completions::print(&asked),
        Command::Man => commands::man::print(),
        Command::Doctor(asked) => commands::doctor::run(&server, &asked),
        Command::Run(asked) => run::run(&server, &asked),
        Command::Guard(asked) => run::guard(&asked),
    };
    outcome.unwrap_or_else(|failure| failure.tell())
}
