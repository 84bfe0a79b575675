//! `completions`: what makes a shell complete this tool's options.

use std::process::ExitCode;

use clap::{Args, Command};

use crate::failure::Failure;
use crate::output::write;

#[derive(Debug, Args)]
pub struct Completions {
    pub shell: clap_complete::Shell,
}

/// `tool`: all that it understands.
pub fn print(asked: &Completions, mut tool: Command) -> Result<ExitCode, Failure> {
    let name = tool.get_name().to_owned();
    // What cannot be written it would panic at.
    let mut text = Vec::new();
    clap_complete::generate(asked.shell, &mut tool, name, &mut text);
    write(&text)?;
    Ok(ExitCode::SUCCESS)
}
