//! `completions`: prints a shell completion script.

use std::process::ExitCode;

use clap::{Args, Command};

use crate::failure::Failure;
use crate::output::write;

#[derive(Debug, Args)]
pub struct Completions {
    pub shell: clap_complete::Shell,
}

/// Prints the script. `tool` defines the whole command line.
pub fn print(asked: &Completions, mut tool: Command) -> Result<ExitCode, Failure> {
    let name = tool.get_name().to_owned();
    // `generate` panics if the output cannot be written, so it gets a buffer.
    let mut text = Vec::new();
    clap_complete::generate(asked.shell, &mut tool, name, &mut text);
    write(&text)?;
    Ok(ExitCode::SUCCESS)
}
