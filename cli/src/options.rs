//! Options on the command line and in the environment.

use std::any::TypeId;
use std::ffi::OsStr;
use std::path::PathBuf;

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::commands::completions::Completions;
use crate::commands::doctor::Doctor;
use crate::commands::inspect::Inspect;
use crate::commands::limit::Limit;
use crate::commands::ls::Ls;
use crate::commands::revoke::Revoke;
#[cfg(feature = "exporter")]
use crate::exporter::options::Exporter;
use crate::failure::Failure;
use crate::load::options::Load;
use crate::output::{report, say};
use crate::run::options::Run;
use crate::server::options::Server;
use crate::server::passwords;

const STATUS: &str = "\
Exit status of all commands (`run` and `top` have more):
  0   success
  1   negative result: see the help of the command
  2   an option is wrong, or a file that it names
  69  Redis is unreachable or unusable, rejected the call, or did not reply
  71  the system refused a process, a signal handler or the like
  74  the output could not be written

Write durations like 30s, 5m or '1h 30m'. RUST_LOG=redis_semaphore=warn logs library warnings.";

/// The end of the help of each command that connects to a server.
const SEE_SERVER_OPTIONS: &str = "Server options: see `redis-semaphore --help`.";

/// Limit how many commands run at once, on any number of machines, through Redis
#[derive(Debug, Parser)]
#[command(name = "redis-semaphore", version, after_help = STATUS)]
pub struct Options {
    #[command(flatten)]
    pub server: Server,
    #[command(subcommand)]
    pub command: Command,
}

impl Options {
    /// Reads the options of this process. Ends the process if clap rejects the options, or if they
    /// ask for help.
    pub fn read() -> Result<Self, Failure> {
        // This check comes first, because clap prints an unknown argument, which may contain a
        // password.
        passwords::refuse(std::env::args_os().skip(1))?;
        let mut command = Self::accepted(with_short_help);
        let variables = command.get_arguments().filter_map(Arg::get_env);
        passwords::refuse_in_variables(variables.filter(|name| *name != "REDIS_URL"))?;
        let found = command.try_get_matches_from_mut(std::env::args_os());
        let options = found.and_then(|found| Self::from_arg_matches(&found));
        let options = options.map_err(|error| match not_utf8(&command, &error) {
            Some(failure) => failure,
            None => end_with(&without_secrets(with_tip(error))),
        })?;
        // If clap checked this conflict, it would also report REDIS_CLUSTER=no as a conflict.
        if options.server.cluster && options.server.sentinel.is_some() {
            let reason = "--cluster and --sentinel exclude each other: the URLs name either \
                          cluster nodes or sentinels";
            command.error(ErrorKind::ArgumentConflict, reason).exit();
        }
        Ok(options)
    }

    /// Returns the definition of the command line.
    pub fn definition() -> clap::Command {
        Self::accepted(|command, _| command)
    }

    /// Returns the commands and options as they are declared. All options that stand before a
    /// command are server options.
    pub fn declared() -> clap::Command {
        let of_server =
            |option: Arg| option.global(true).hide_env_values(true).hide_short_help(true);
        Self::command().mut_args(of_server)
    }

    /// Returns the definition, in which `change` was applied to each command that has the server
    /// options.
    fn accepted(change: impl Fn(clap::Command, &[Arg]) -> clap::Command) -> clap::Command {
        let plain = Self::declared().mut_args(without_empty_variable);
        let plain = plain.mut_args(with_dash).mut_subcommands(|its| its.mut_args(with_dash));
        let server: Vec<_> = plain.get_arguments().cloned().collect();
        let mut accepted = plain.clone().mut_subcommands(|command| match has_server(&command) {
            true => change(command, &server),
            false => command,
        });
        // Copies the server options to all commands.
        accepted.build();
        accepted.mut_subcommands(|command| match has_server(&command) {
            true => command,
            false => without_server_options(&command, &plain),
        })
    }
}

fn has_server(command: &clap::Command) -> bool {
    !["completions", "man", "help"].contains(&command.get_name())
}

/// Returns the command as it was before clap copied the server options to it.
fn without_server_options(command: &clap::Command, plain: &clap::Command) -> clap::Command {
    let name = command.get_name();
    let Some(own) = plain.find_subcommand(name).cloned() else { return command.clone() };
    own.bin_name(command.get_bin_name().unwrap_or(name).to_owned())
        .display_name(command.get_display_name().unwrap_or(name).to_owned())
}

/// Hides the server options in the help of a command, because `redis-semaphore --help` shows them.
fn with_short_help(command: clap::Command, server: &[Arg]) -> clap::Command {
    let own = command.get_after_help().map(|own| format!("{own}\n\n")).unwrap_or_default();
    let hidden = |option: &Arg| option.clone().hide_short_help(false).hide(true);
    command.args(server.iter().map(hidden)).after_help(own + SEE_SERVER_OPTIONS)
}

/// An empty variable counts as unset. REDIS_URL is the exception: if it is empty by mistake, the
/// default server must not be used.
fn without_empty_variable(option: Arg) -> Arg {
    let is_empty = |name| std::env::var_os(name).is_some_and(|value| value.is_empty());
    match option.get_env() {
        Some(name) if option.get_id() != "url" && is_empty(name) => option.env(Resettable::Reset),
        _ => option,
    }
}

/// Lets a duration option accept a value such as -1s, which is rejected later. The error about a
/// wrong duration is clearer than an error about an unknown option.
fn with_dash(option: Arg) -> Arg {
    let is_duration = option.get_value_names() == Some(&["DURATION".into()]);
    if is_duration { option.allow_hyphen_values(true) } else { option }
}

/// Adds a tip if the `--` before a command is missing, because clap shows the `--` only in the
/// usage. Removes the tip of clap to write a name that begins with a dash after `--`, because
/// only the command follows `--`.
fn with_tip(mut error: clap::Error) -> clap::Error {
    let context = |kind| error.get(kind).map(ContextValue::to_string).unwrap_or_default();
    let is_word = !context(ContextKind::InvalidArg).starts_with('-');
    let wants_command = context(ContextKind::Usage).contains(" -- ");
    if error.kind() == ErrorKind::UnknownArgument && wants_command {
        let tip = "write the command after '--': redis-semaphore run NAME -- COMMAND";
        let tips = if is_word { vec![tip.into()] } else { Vec::new() };
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
}

/// Returns an error that names the environment variable whose value is not UTF-8. The error of clap
/// would blame the arguments.
fn not_utf8(command: &clap::Command, error: &clap::Error) -> Option<Failure> {
    if error.kind() != ErrorKind::InvalidUtf8 {
        return None;
    }
    let is_text = |option: &&Arg| option.get_value_parser().type_id() != TypeId::of::<PathBuf>();
    let mut variables = command.get_arguments().filter(is_text).filter_map(Arg::get_env);
    let is_wrong = |name: &&OsStr| std::env::var_os(name).is_some_and(|its| its.to_str().is_none());
    let name = variables.find(is_wrong)?;
    Some(Failure::usage(format!("{}: its value is not UTF-8", name.display())))
}

/// Hides values that are or may be secrets.
fn without_secrets(mut error: clap::Error) -> clap::Error {
    let hidden: Vec<_> = error
        .context()
        .map(|(kind, value)| (kind, value.to_string()))
        .map(|(kind, value)| (kind, passwords::shown(&value).into_owned(), value))
        .filter(|(_, shown, value)| shown != value)
        .map(|(kind, shown, _)| (kind, ContextValue::String(shown)))
        .collect();
    for (kind, value) in hidden {
        error.insert(kind, value);
    }
    error
}

/// Prints a help text or an error of clap, and ends the process. Returns only if a help text cannot
/// be written.
fn end_with(message: &clap::Error) -> Failure {
    let text = message.render().to_string();
    let text = text.trim_end_matches('\n');
    match message.use_stderr() {
        true => report(text),
        false => {
            if let Err(failure) = say(text) {
                return failure;
            }
        }
    }
    std::process::exit(message.exit_code())
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command while holding a permit
    Run(Run),
    /// List semaphores with their limits, holders and queues
    Ls(Ls),
    /// Show the limits, holders and waiters of a semaphore
    Inspect(Inspect),
    /// Change a limit, or show it
    Limit(Limit),
    /// Revoke a permit, or remove a request from the queue
    Revoke(Revoke),
    /// Check the server for problems that endanger semaphores, and suggest fixes
    Doctor(Doctor),
    /// Watch semaphores live, change limits and revoke permits
    #[cfg(feature = "top")]
    Top(crate::top::options::Top),
    /// Serve metrics for Prometheus
    #[cfg(feature = "exporter")]
    Exporter(Exporter),
    /// Demonstrate a semaphore in ten seconds: six processes share it, and one is killed
    #[command(
        override_usage = "redis-semaphore demo [OPTIONS]",
        after_help = "Exit status: 0 if all promises were kept, 1 if not."
    )]
    Demo,
    /// Measure a semaphore under load
    Load(Load),
    /// Print a shell completion script
    Completions(Completions),
    /// Print the man page
    Man,
}
