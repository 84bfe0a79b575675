//! Decides from the environment whether a terminal supports colors and drawing.

use std::io::IsTerminal;

/// Returns whether lines on this output can be drawn over.
pub fn can_draw(output: &impl IsTerminal) -> bool {
    output.is_terminal() && std::env::var_os("TERM").is_some_and(|terminal| terminal != "dumb")
}

/// Returns whether to use colors: see no-color.org. Old terminals have no colors. Terminals whose
/// names exclude colors (term(7)) have none either.
pub fn has_colors(output: &impl IsTerminal) -> bool {
    let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|wish| !wish.is_empty());
    let terminal = std::env::var("TERM").unwrap_or_default();
    let has_none =
        terminal.starts_with("vt") || ["-m", "-mono"].iter().any(|end| terminal.ends_with(end));
    can_draw(output) && !is_unwanted && !has_none
}

/// Colors text if the output has colors.
#[derive(Debug, Clone, Copy)]
pub struct Paint {
    is_on: bool,
}

impl Paint {
    pub fn on(output: &impl IsTerminal) -> Self {
        Self { is_on: has_colors(output) }
    }

    pub fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    pub fn red(self, text: &str) -> String {
        self.paint("31", text)
    }

    pub fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }

    pub fn magenta(self, text: &str) -> String {
        self.paint("35", text)
    }

    pub fn faint(self, text: &str) -> String {
        self.paint("2", text)
    }

    fn paint(self, color: &str, text: &str) -> String {
        if self.is_on { format!("\x1b[{color}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
