//! The process of a command before it becomes the command. The process stays stopped until the
//! guard knows its ID, and the CLI has given it the terminal, if the CLI has a terminal. If the
//! guard is killed before that, the process ends, too.

use std::env;
use std::os::unix::process::{CommandExt, parent_id};
use std::process::{Command, ExitCode};

use nix::sys::signal::{Signal, raise};
use rustix::process::set_parent_process_death_signal;

use super::command::not_started;
use crate::failure::{Failure, LOST};
use crate::role;

/// The signal that kills the prepared process if its guard ends before the process becomes the
/// command. Commands practically never die of this signal, so the CLI recognizes such an end.
pub const DIED_WITH_GUARD: Signal = Signal::SIGVTALRM;

/// Becomes the command, which is in the arguments. `guard` is the process that started this
/// process.
pub fn become_command(guard: &str) -> Result<ExitCode, Failure> {
    let failed = Failure::system("cannot start the command");
    let die_with_the_guard = Some(rustix::process::Signal::VTALARM);
    set_parent_process_death_signal(die_with_the_guard).map_err(|error| failed(error.into()))?;
    let has_ended = || parent_id().to_string() != guard;
    if !has_ended() {
        raise(Signal::SIGSTOP).map_err(|error| failed(error.into()))?;
    }
    if has_ended() {
        return Ok(ExitCode::from(LOST));
    }
    // From here on, the death of the guard must not end this process. Another guard takes over.
    set_parent_process_death_signal(None).map_err(|error| failed(error.into()))?;
    let mut command = env::args_os().skip(1);
    let program = command.next().unwrap_or_default();
    let error = Command::new(&program).args(command).env_remove(role::VARIABLE).exec();
    Err(not_started(&program, &error))
}
