//! `man`: the manual page, in roff, with all commands in it.

use std::io;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_mangen::Man;

use crate::failure::Failure;
use crate::options::Options;

pub fn print() -> Result<ExitCode, Failure> {
    Man::new(Options::command()).render(&mut io::stdout())?;
    Ok(ExitCode::SUCCESS)
}
