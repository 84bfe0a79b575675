//! `completions`: what makes a shell complete this tool's options.

use std::io;
use std::process::ExitCode;

use clap::CommandFactory;

use crate::failure::Failure;
use crate::options::{Completions, Options};

pub fn print(asked: &Completions) -> Result<ExitCode, Failure> {
    let mut command = Options::command();
    let name = command.get_name().to_owned();
    clap_complete::generate(asked.shell, &mut command, name, &mut io::stdout());
    Ok(ExitCode::SUCCESS)
}
