//! `man`: prints the man page in roff, followed by a page for each command.

use std::process::ExitCode;

use clap::Command;
use clap_mangen::Man;

use crate::failure::Failure;
use crate::output::{unwritable, write};

/// Prints the man page. `tool` defines the whole command line.
pub fn print(tool: Command) -> Result<ExitCode, Failure> {
    // clap_mangen would omit the text of an option that the short help hides.
    let tool = tool.mut_args(|option| option.hide_short_help(false));
    let mut whole = tool.disable_help_subcommand(true);
    // Gives each command its full name.
    whole.build();
    let mut text = Vec::new();
    for page in std::iter::once(whole.clone()).chain(whole.get_subcommands().map(own_page)) {
        Man::new(page).render(&mut text).map_err(unwritable)?;
    }
    // In the man page of `run`, clap omits the `--` before the command.
    let command = r"<\fICOMMAND\fR>";
    let text = String::from_utf8_lossy(&text).replace(command, &format!(r"\-\- {command}..."));
    write(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Returns a command without the server options, which are on the first page.
fn own_page(command: &Command) -> Command {
    command.clone().mut_args(|option| {
        let is_everywhere = option.is_global_set();
        option.hide(is_everywhere)
    })
}
