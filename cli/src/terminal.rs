//! What the environment says of the terminal.

use std::io::IsTerminal;

/// Whether lines can be drawn over there.
pub fn can_draw(output: &impl IsTerminal) -> bool {
    output.is_terminal() && std::env::var_os("TERM").is_some_and(|terminal| terminal != "dumb")
}

/// See no-color.org.
pub fn has_colours(output: &impl IsTerminal) -> bool {
    let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|wish| !wish.is_empty());
    can_draw(output) && !is_unwanted
}
