//! `completions`: what makes a shell complete this tool's options.

use std::process::ExitCode;

use clap::CommandFactory;

use crate::failure::Failure;
use crate::options::{Completions, Options};
use crate::output::write;

pub fn print(asked: &Completions) -> Result<ExitCode, Failure> {
    let mut command = Options::command();
    let name = command.get_name().to_owned();
    // What cannot be written it would panic at.
    let mut text = Vec::new();
    clap_complete::generate(asked.shell, &mut command, name, &mut text);
    write(&text)?;
    Ok(ExitCode::SUCCESS)
}
