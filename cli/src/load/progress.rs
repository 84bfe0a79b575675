//! Shows the progress of the run on standard error, because standard output is for the results.

use crate::clock::{self, SECOND};
use crate::load::messages::Progress;
use crate::output::whisper;
use crate::paint::can_draw;

const CLEAR: &str = "\r\x1b[2K";

pub struct Display {
    /// Whether standard error is a terminal, on which the line is redrawn in place.
    is_terminal: bool,
    begin: u64,
    /// When the run ends if it is not interrupted.
    end: u64,
    /// The time and the values of the last line.
    last: (u64, Progress),
}

impl Display {
    pub fn new(begin: u64, end: u64) -> Self {
        Self {
            is_terminal: can_draw(&std::io::stderr()),
            begin,
            end,
            last: (begin, Progress::default()),
        }
    }

    pub fn show(&mut self, progress: Progress) {
        let now = clock::now();
        let (then, before) = self.last;
        let per_second =
            (progress.acquires - before.acquires) as f64 * SECOND as f64 / (now - then) as f64;
        self.last = (now, progress);
        let Progress { acquires, waiting } = progress;
        let seconds = |until: u64| (until - self.begin) as f64 / SECOND as f64;
        let (passed, all) = (seconds(now), seconds(self.end));
        let line = format!(
            "{passed:5.1} of {all:.1} s  {acquires} acquires, {per_second:.0} per second, \
             {waiting} waiting"
        );
        match self.is_terminal {
            true => whisper(&format!("{CLEAR}{line}")),
            false => whisper(&format!("{line}\n")),
        }
    }

    /// Clears the line, to make room for the results.
    pub fn clear(&self) {
        if self.is_terminal {
            whisper(CLEAR);
        }
    }
}
