//! Results as text or as JSON.

use std::fmt::Display;

use clap::Args;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{say, say_json};

#[derive(Debug, Args)]
pub struct Format {
    /// Print one JSON object: see docs/cli.md
    #[arg(long)]
    pub json: bool,
}

impl Format {
    /// Prints the result in the requested format.
    pub fn say(&self, json: impl Serialize, text: impl Display) -> Result<(), Failure> {
        if self.json { say_json(&json) } else { say(text) }
    }
}
