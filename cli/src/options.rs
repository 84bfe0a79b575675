//! What may be asked for on the command line, and in the environment.

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
use crate::output::{say, tell};
use crate::run::options::Run;
use crate::server::options::Server;
use crate::server::passwords;

const STATUS: &str = "\
Exit status (`run` has more of them, see there):
  0   done
  1   done, and the answer is no: see the command
  2   an option is wrong, or a file that it names
  69  Redis cannot be reached or used, refused the call, or gave no answer
  71  the system refused a process, a signal or the like
  74  the output could not be written

RUST_LOG=redis_semaphore=warn shows what the library logs, on standard error.";

/// Limits how many commands run at once, on any number of machines, through Redis
#[derive(Debug, Parser)]
#[command(name = "redis-semaphore", version, after_help = STATUS)]
pub struct Options {
    #[command(flatten)]
    pub server: Server,
    #[command(subcommand)]
    pub command: Command,
}

impl Options {
    /// Of this process. Ends it where clap finds that something is wrong with them.
    pub fn read() -> Result<Self, Failure> {
        // clap repeats what it does not know.
        passwords::refuse(std::env::args_os().skip(1))?;
        let mut command = Self::command().mut_args(without_empty_variable);
        let found = command.try_get_matches_from_mut(std::env::args_os());
        let options = found.and_then(|found| Self::from_arg_matches(&found));
        let options = options.map_err(|error| end_with(&with_tip(error)))?;
        // clap would take REDIS_CLUSTER=no for a conflict, too.
        if options.server.cluster && options.server.sentinel.is_some() {
            let reason =
                "--cluster and --sentinel exclude each other: the URLs are one or the other";
            command.error(ErrorKind::ArgumentConflict, reason).exit();
        }
        Ok(options)
    }
}

/// A variable that is empty is one that is not set, but for REDIS_URL: whoever wanted some server
/// must not get the one of this machine.
fn without_empty_variable(option: Arg) -> Arg {
    let is_empty = |name| std::env::var_os(name).is_some_and(|value| value.is_empty());
    match option.get_env() {
        Some(name) if option.get_id() != "url" && is_empty(name) => option.env(Resettable::Reset),
        _ => option,
    }
}

/// Tells of the `--` that a command lacks: clap shows it in the usage only.
fn with_tip(mut error: clap::Error) -> clap::Error {
    let told = |kind| error.get(kind).map(ContextValue::to_string).unwrap_or_default();
    let is_word = !told(ContextKind::InvalidArg).starts_with('-');
    let wants_command = told(ContextKind::Usage).contains(" -- ");
    if error.kind() == ErrorKind::UnknownArgument && is_word && wants_command {
        let tip = "the command stands behind '--': redis-semaphore run NAME -- COMMAND";
        let tips = ContextValue::StyledStrs(vec![tip.into()]);
        error.insert(ContextKind::Suggested, tips);
    }
    error
}

/// Help is an answer, too, that may find no room. An error has its status, whoever reads it.
fn end_with(told: &clap::Error) -> Failure {
    let text = told.render().to_string();
    let text = text.trim_end_matches('\n');
    match told.use_stderr() {
        true => tell(text),
        false => {
            if let Err(failure) = say(text) {
                return failure;
            }
        }
    }
    std::process::exit(told.exit_code())
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command while holding a permit: wait for one, renew it, give it back
    Run(Run),
    /// List the semaphores: who holds how much, how many wait, and for how long
    Ls(Ls),
    /// Show one semaphore: its limits, who holds it, who waits
    Inspect(Inspect),
    /// Show a limit, or set another one for everybody until it is cleared
    Limit(Limit),
    /// Take a permit away from its holder, or a request out of the queue
    Revoke(Revoke),
    /// Look at the server for what endangers semaphores: each check, and what mends it
    Doctor(Doctor),
    /// Watch the semaphores in the terminal, change limits, revoke permits
    #[cfg(feature = "top")]
    Top(crate::top::options::Top),
    /// Serve metrics for Prometheus: how full the semaphores are, and how long somebody waits
    #[cfg(feature = "exporter")]
    Exporter(Exporter),
    /// See six processes share a semaphore, one of which is killed: it takes ten seconds
    #[command(
        after_help = "Exit status: 0 all that was promised was seen, 1 it was not, others as for \
                            all commands."
    )]
    Demo,
    /// Measure what a semaphore does under load
    Load(Load),
    /// Print what makes a shell complete this tool's options
    Completions(Completions),
    /// Print the manual page, in roff
    Man,
}
