//! `completions`: prints a shell completion script.

use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::failure::Failure;
use crate::output::write;

#[derive(Debug, Args)]
pub struct Completions {
    pub shell: Shell,
}

/// Prints the script. `tool` defines the whole command line.
pub fn print(asked: &Completions, mut tool: Command) -> Result<ExitCode, Failure> {
    let name = tool.get_name().to_owned();
    // `generate` panics if the output cannot be written, so it gets a buffer.
    let mut text = Vec::new();
    clap_complete::generate(asked.shell, &mut tool, name, &mut text);
    let text = String::from_utf8_lossy(&text);
    match asked.shell {
        Shell::Bash => {
            write(text.lines().map(without_placeholders).collect::<String>().as_bytes())?
        }
        _ => write(text.as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Removes the names of positional arguments, such as `<NAME>`: clap_complete lists them among the
/// words that the user can type.
fn without_placeholders(line: &str) -> String {
    let Some((before, words)) = line.split_once("opts=\"") else { return format!("{line}\n") };
    let words = words.trim_end_matches('"').split(' ').filter(|word| !word.starts_with(['<', '[']));
    format!("{before}opts=\"{}\"\n", words.collect::<Vec<_>>().join(" "))
}
