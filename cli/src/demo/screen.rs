//! Standard output: a terminal, on which a picture is redrawn in place, or a file, to which lines
//! are appended.

use std::io::stdout;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::output::{say, write};
use crate::paint::{Paint, can_draw};

/// The interval between lines in a file.
const PAUSE: Duration = Duration::from_millis(500);

const UP_AND_CLEAR: &str = "\x1b[1A\x1b[2K";
/// Cuts lines that are too long for the terminal, because wrapped lines could not be drawn over.
const CUT: &str = "\x1b[?7l";
const WRAP: &str = "\x1b[?7h";

pub struct Screen {
    pub paint: Paint,
    is_terminal: bool,
    /// How many lines of the picture must be drawn over.
    drawn: usize,
    last_line: Option<Instant>,
}

impl Screen {
    pub fn new() -> Self {
        let is_terminal = can_draw(&stdout());
        Self { paint: Paint::on(&stdout()), is_terminal, drawn: 0, last_line: None }
    }

    /// Shows the current state, as a picture or as one line.
    pub fn show(
        &mut self,
        picture: impl FnOnce() -> Vec<String>,
        line: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        if self.is_terminal {
            let picture = picture();
            let over = UP_AND_CLEAR.repeat(self.drawn);
            self.drawn = picture.len();
            // A single write avoids flicker.
            return write(format!("{over}{CUT}{}\n{WRAP}", picture.join("\n")).as_bytes());
        }
        if self.last_line.is_some_and(|last| last.elapsed() < PAUSE) {
            return Ok(());
        }
        self.last_line = Some(Instant::now());
        say(line())
    }

    /// Prints text that stays on the screen. The next picture is drawn below.
    pub fn say(&mut self, text: &str) -> Result<(), Failure> {
        let over = UP_AND_CLEAR.repeat(self.drawn);
        self.drawn = 0;
        write(format!("{over}{text}\n").as_bytes())
    }
}
