//! The results of a run, and the figures that could not be measured.

use super::Result;
use super::figure::{self, Figure};

#[derive(Default)]
pub struct Report {
    figures: Vec<Figure>,
    /// Why figures could not be measured, one reason on each line.
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

    /// Prints the results. With `json`, prints only the figures.
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
