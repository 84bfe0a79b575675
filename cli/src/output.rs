//! The output of the CLI. It does not use `println!` and `eprintln!`, which panic if the reader has
//! gone or the disk is full.
//!
//! All functions but `write` escape the text, because servers and other clients wrote parts of it.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use serde::Serialize;

use crate::escape;
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
    write(format!("{}\n", escape::text(&text.to_string())).as_bytes())
}

/// An answer for programs, in one line.
pub fn say_json(answer: &impl Serialize) -> Result<(), Failure> {
    write(format!("{}\n", escape::json(answer)).as_bytes())
}

/// As it is, with no line break behind it: for what is in colors or draws, of which all that others
/// wrote was escaped before.
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

/// What somebody should know, as one line on standard error with the name of the tool.
pub fn note(text: impl Display) {
    tell(format_args!("redis-semaphore: {}", escape::line(&text.to_string())));
}

/// Prints one or more lines beside the result, on standard error. Ignores the error if they cannot
/// be written.
pub fn tell(text: impl Display) {
    whisper(&format!("{}\n", escape::text(&text.to_string())));
}

/// As it is, with no line break behind it, as `write` does.
pub fn whisper(text: &str) {
    let _ = Errors.write_all(text.as_bytes());
}

/// The error output. A terminal may stop who writes to it in the background (`stty tostop`), but
/// not this program, which may have a permit to keep.
pub struct Errors;

impl Write for Errors {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let stop = SigSet::from_iter([Signal::SIGTTOU]);
        let mask = stop.thread_swap_mask(SigmaskHow::SIG_BLOCK);
        let written = io::stderr().write(text);
        if let Ok(mask) = mask {
            mask.thread_set_mask()?;
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(()) // nothing is kept back
    }
}

/// Standard error for a log, of which each line is written at once.
pub struct Log;

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        tell(escape::line(text.strip_suffix('\n').unwrap_or(&text)));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
