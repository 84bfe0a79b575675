//! Text that fits into the terminal. Names, client names and reasons may have any length and any
//! script. This module escapes all text that is drawn.

use std::time::{Duration, SystemTime};

use ratatui::style::Style;
use ratatui::text::Span;

use crate::escape;
use crate::table::rounded;

const CUT: &str = "…";

/// Returns the text, or its beginning if it does not fit.
pub fn fitted(text: &str, width: usize) -> String {
    let text = escape::line(text);
    if width_of(&text) <= width {
        return text;
    }
    taken(signs(&text).iter(), width.saturating_sub(1)).concat() + cut(width)
}

/// Returns the text, or its end if it does not fit, because IDs differ at the end.
pub fn fitted_end(text: &str, width: usize) -> String {
    let text = escape::line(text);
    if width_of(&text) <= width {
        return text;
    }
    let signs = signs(&text);
    let mut end = taken(signs.iter().rev(), width.saturating_sub(1));
    end.reverse();
    cut(width).to_owned() + &end.concat()
}

/// Returns lines that fit, broken between words if possible.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = vec![String::new()];
    for word in escape::text(text).split_whitespace() {
        let last = lines.last_mut().expect("there is always one");
        let gap = usize::from(!last.is_empty());
        if width_of(last) + gap + width_of(word) <= width {
            last.push_str(&" ".repeat(gap));
            last.push_str(word);
            continue;
        }
        if !last.is_empty() {
            lines.push(String::new());
        }
        for sign in signs(word) {
            if width_of(lines.last().expect("there is always a line")) + width_of(&sign) > width {
                lines.push(String::new());
            }
            lines.last_mut().expect("there is always a line").push_str(&sign);
        }
    }
    lines
}

/// Rounds down to seconds, or to milliseconds below 1 s, and shows at most two units.
pub fn short(time: Duration) -> String {
    rounded(time).split(' ').take(2).collect::<Vec<_>>().join(" ")
}

pub fn time_of_day(time: SystemTime) -> String {
    let text = humantime::format_rfc3339_seconds(time).to_string();
    text.replace('T', " ").replace('Z', " UTC")
}

pub fn width_of(text: &str) -> usize {
    Span::raw(text).width()
}

fn cut(width: usize) -> &'static str {
    if width == 0 { "" } else { CUT }
}

/// Returns the visible signs, each of which may consist of several characters.
fn signs(text: &str) -> Vec<String> {
    let span = Span::raw(text);
    span.styled_graphemes(Style::default()).map(|sign| sign.symbol.to_owned()).collect()
}

fn taken<'a>(signs: impl Iterator<Item = &'a String>, width: usize) -> Vec<&'a str> {
    let mut left = width;
    let fits = |sign: &&String| {
        let rest = left.checked_sub(width_of(sign));
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    signs.take_while(fits).map(|sign| &**sign).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_long_text_is_truncated_with_an_ellipsis() {
        assert_eq!(fitted("jobs", 4), "jobs");
        assert_eq!(fitted("jobs!", 4), "job…");
        assert_eq!(fitted_end("P:web:1", 4), "…b:1");
        assert_eq!(fitted("漢字漢字", 5), "漢字…");
        assert_eq!(fitted("漢字漢字", 4), "漢…");
        assert_eq!(fitted("👍🏽👍🏽", 3), "👍🏽…");
        assert_eq!(fitted("a\u{9b}", 7), "a\\u{9b}");
        assert_eq!(fitted_end("a\u{9b}", 5), "…{9b}");
        assert_eq!(fitted("jobs", 0), "");
    }

    #[test]
    fn lines_break_between_words_and_within_long_words() {
        assert_eq!(wrapped("a bc  def", 4), ["a bc", "def"]);
        assert_eq!(wrapped("a bcdefg h", 3), ["a", "bcd", "efg", "h"]);
        assert_eq!(wrapped("", 3), [""]);
        assert_eq!(wrapped("漢字", 0), ["", "漢", "字"]);
    }

    #[test]
    fn times_have_two_units_at_most() {
        assert_eq!(short(Duration::from_micros(999_900)), "999ms");
        assert_eq!(short(Duration::from_millis(61_900)), "1m 1s");
        assert_eq!(short(Duration::from_secs(90_061)), "1day 1h");
    }
}
