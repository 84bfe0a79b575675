//! `redis-semaphore`: limits how many commands run at once, on any number of machines.
//!
//! Read `options.rs` first: it defines the commands and the global options. `server/` connects. The
//! larger commands `run`, `top`, `exporter`, `demo` and `load` have folders. Every other command is
//! a file in `commands/`, with its arguments. `failure.rs` defines the errors that end a command.
//! All output goes through `output.rs`, except the picture of `top`.
#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "the CLI redis-semaphore runs on Linux only. The library runs on other systems, too."
);

mod clock;
mod commands;
mod demo;
mod duration;
mod escape;
#[cfg(feature = "exporter")]
mod exporter;
mod failure;
mod format;
mod group;
mod identifier;
mod interruption;
mod limits;
mod load;
mod number;
mod options;
mod output;
mod overlap;
mod paint;
mod panics;
mod pattern;
mod role;
mod run;
mod server;
mod survey;
mod table;
#[cfg(feature = "top")]
mod top;
mod workers;

use std::io::IsTerminal;
use std::process::ExitCode;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

use crate::failure::Failure;
use crate::options::{Command, Options};

fn main() -> ExitCode {
    output::survive_full_files();
    panics::report_lacks();
    panics::caught(run_role).unwrap_or_else(Failure::report)
}

fn run_role() -> Result<ExitCode, Failure> {
    let role = role::of_this_process();
    match role.as_deref().and_then(|role| role.split_once(' ')) {
        Some((role::GUARD, grace)) => run::guard(grace),
        Some((role::STARTER, guard)) => run::become_command(guard),
        _ => Options::read().and_then(|options| run_command(options, role)),
    }
}

fn run_command(options: Options, role: Option<String>) -> Result<ExitCode, Failure> {
    let Options { server, command } = options;
    if !(draws(&command) && std::io::stderr().is_terminal()) {
        start_log(role.is_none());
    }
    match command {
        Command::Completions(asked) => commands::completions::print(&asked, Options::definition()),
        Command::Man => commands::man::print(Options::declared()),
        Command::Demo => demo::run(server, role),
        Command::Load(asked) => load::run(&server, &asked, role.is_some()),
        Command::Ls(asked) => commands::ls::run(&server, &asked),
        Command::Inspect(asked) => commands::inspect::run(&server, &asked),
        Command::Limit(asked) => commands::limit::run(&server, &asked),
        Command::Revoke(asked) => commands::revoke::run(&server, &asked),
        #[cfg(feature = "top")]
        Command::Top(asked) => top::run(&server, &asked),
        #[cfg(feature = "exporter")]
        Command::Exporter(asked) => exporter::run(server, asked),
        Command::Doctor(asked) => commands::doctor::run(&server, &asked),
        Command::Run(asked) => run::run(&server, &asked),
    }
}

/// Starts the log on standard error. RUST_LOG selects the messages. Standard output is for results.
fn start_log(is_first: bool) {
    let log = std::env::var("RUST_LOG").unwrap_or_default();
    let log = log.parse().unwrap_or_else(|error| {
        // Other programs use this variable, too, so a wrong value is no reason to fail.
        if is_first {
            output::note(format_args!(
                "RUST_LOG cannot be used ({error}), so nothing is logged: write it like \
                 RUST_LOG=redis_semaphore=warn"
            ));
        }
        Targets::new()
    });
    let shown = tracing_subscriber::fmt::layer().with_writer(|| output::Log).with_filter(log);
    tracing_subscriber::registry().with(shown).with(run::outage_listener()).init();
}

/// Returns whether the command draws on the terminal. Log lines would destroy the picture of the
/// command.
#[cfg(feature = "top")]
fn draws(command: &Command) -> bool {
    matches!(command, Command::Top(_))
}

#[cfg(not(feature = "top"))]
fn draws(_: &Command) -> bool {
    false
}
