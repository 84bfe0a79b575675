//! Answers for people, or for programs.

use std::fmt::Display;

use clap::Args;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{say, say_json};

#[derive(Debug, Args)]
pub struct Format {
    /// One JSON object instead of text: see docs/cli.md
    #[arg(long)]
    pub json: bool,
}

impl Format {
    /// Says the answer in one of the two.
    pub fn say(&self, json: impl Serialize, text: impl Display) -> Result<(), Failure> {
        if self.json { say_json(&json) } else { say(text) }
    }
}
