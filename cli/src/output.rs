//! What this tool says. `println!` and `eprintln!` panic where nobody reads it, or the disk is full.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use crate::failure::{Failure, UNWRITABLE};

impl Failure {
    pub fn tell(self) -> ExitCode {
        if !self.reason.is_empty() {
            note(&self);
        }
        ExitCode::from(self.status)
    }
}

/// A part of the answer, a line or several, on standard output.
pub fn say(text: impl Display) -> Result<(), Failure> {
    write(format!("{text}\n").as_bytes())
}

/// The same, with no line break behind it.
pub fn write(text: &[u8]) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    output.write_all(text).and_then(|()| output.flush()).map_err(unwritable)
}

/// Without a word where it is a pipe: `head` closes one when it has read enough.
pub fn unwritable(error: io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Failure::new(UNWRITABLE, "");
    }
    Failure::new(UNWRITABLE, format!("writing the output failed: {error}"))
}

/// What somebody should know, as a line on standard error with the name of the tool.
pub fn note(text: impl Display) {
    tell(format_args!("redis-semaphore: {text}"));
}

/// A line beside the answer, on standard error: where nobody reads that, nobody can be told.
pub fn tell(text: impl Display) {
    whisper(&format!("{text}\n"));
}

/// The same, with no line break behind it.
pub fn whisper(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}
