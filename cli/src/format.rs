//! Answers for people, or for programs.

use std::fmt::Display;

use clap::Args;

use crate::failure::Failure;
use crate::output::say;

#[derive(Debug, Args)]
pub struct Format {
    /// One JSON object instead of text: see docs/cli.md
    #[arg(long)]
    pub json: bool,
}

impl Format {
    /// Says the answer in one of the two.
    pub fn say(&self, json: impl Display, text: impl Display) -> Result<(), Failure> {
        if self.json { say(json) } else { say(text) }
    }
}
