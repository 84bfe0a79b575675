//! What a run has measured, and what it could not.

use super::Result;
use super::figure::{self, Figure};

#[derive(Default)]
pub struct Report {
    figures: Vec<Figure>,
    /// Why not, a line each.
    missing: Vec<String>,
}

impl Report {
    pub fn add(&mut self, figure: Figure) {
        self.figures.push(figure);
    }

    pub fn add_all(&mut self, figures: Vec<Figure>) {
        self.figures.extend(figures);
    }

    pub fn lacks(&mut self, what: &str, reason: impl std::fmt::Display) {
        self.missing.push(format!("{what} was not measured: {reason}"));
    }

    /// The figures are all that a program gets to read.
    pub fn print(&self, json: bool) -> Result<()> {
        if json {
            println!("{}", serde_json::to_string(&self.figures)?);
        } else {
            print!("{}", figure::table(&self.figures));
        }
        for reason in &self.missing {
            if json { eprintln!("{reason}") } else { println!("{reason}") }
        }
        Ok(())
    }
}
