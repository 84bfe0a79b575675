//! Escapes what a terminal must not get: text that a server or another client wrote can neither
//! steer it, nor hide, nor look like other text.
//!
//! `output.rs` escapes everything that it prints, and `top/text.rs` everything that is drawn. A
//! character is escaped, as `\u{202e}`, if it is a control or format character, a separator other
//! than the space, unassigned, for private use, or invisible. It is escaped, too, if it could be
//! written in another way that looks the same: what is printed is in Unicode's normalization form
//! C.

use std::fmt::Write;
use std::io;

use serde::Serialize;
use serde_json::Serializer;
use unicode_normalization::char::{compose, is_combining_mark};
use unicode_normalization::is_nfc;
use unicode_width::UnicodeWidthChar;

/// Combining marks that are printed on one character. More would grow into other lines.
const MOST_MARKS: usize = 4;

/// Text of one or several lines, with parts that others wrote.
pub fn text(text: &str) -> String {
    escaped(text, |c| c == '\n')
}

/// The same, in one line.
pub fn line(text: &str) -> String {
    escaped(text, |_| false)
}

/// A name or the like: no other one is printed in the same way. So a backslash is escaped that
/// would begin an escape, and a space that is not between two other characters. It may be part of a
/// line.
pub fn value(text: &str) -> String {
    let mut signs = Vec::new();
    each(text, |c, is_shown| signs.push((c, is_shown)));
    let at = |index: usize| signs.get(index).map_or(' ', |(c, _)| *c);
    let mut shown = String::with_capacity(text.len());
    for (index, (c, is_shown)) in signs.iter().enumerate() {
        let is_odd = match c {
            ' ' => index == 0 || at(index - 1) == ' ' || index + 1 == signs.len(),
            '\\' => (at(index + 1), at(index + 2)) == ('u', '{'),
            _ => false,
        };
        push(&mut shown, *c, *is_shown && !is_odd);
    }
    shown
}

/// Reads a name that is typed. One that was copied as it is shown has to be written in another way.
pub fn argument(text: &str) -> Result<String, String> {
    let quoted = |part: &str| part.replace('\\', r"\\").replace('\'', r"\'");
    let mut parts = text.split("\\u{");
    let mut in_bash = quoted(parts.next().unwrap_or_default());
    for part in parts {
        let c = part.split_once('}').and_then(|(digits, rest)| {
            u32::from_str_radix(digits, 16).ok().map(|c| format!("\\U{c:08x}{}", quoted(rest)))
        });
        match c {
            Some(c) => in_bash += &c,
            None => return Ok(text.to_owned()),
        }
    }
    match text.contains("\\u{") {
        true => {
            Err(format!("it has characters in it that are escaped: in Bash write $'{in_bash}'"))
        }
        false => Ok(text.to_owned()),
    }
}

/// JSON that is as safe to look at, and is read as exactly the same.
pub fn json(value: &impl Serialize) -> String {
    let mut json = Vec::new();
    let written = value.serialize(&mut Serializer::with_formatter(&mut json, Escaping));
    written.expect("memory takes it, and its keys are text");
    String::from_utf8(json).expect("JSON is UTF-8")
}

fn escaped(text: &str, is_kept: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    each(text, |c, is_shown| push(&mut shown, c, is_shown || is_kept(c)));
    shown
}

fn push(shown: &mut String, c: char, is_shown: bool) {
    match is_shown {
        true => shown.push(c),
        false => write!(shown, "\\u{{{:x}}}", u32::from(c)).expect("memory takes it"),
    }
}

struct Escaping;

impl serde_json::ser::Formatter for Escaping {
    /// Of what JSON itself does not escape.
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut shown = String::with_capacity(fragment.len());
        each(fragment, |c, is_shown| match is_shown {
            true => shown.push(c),
            false => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(shown, "\\u{unit:04x}").expect("memory takes it");
                }
            }
        });
        writer.write_all(shown.as_bytes())
    }
}

/// Says of each character whether it can be shown.
fn each(text: &str, mut tell: impl FnMut(char, bool)) {
    let (mut chars, mut sign) = (text.chars().peekable(), String::new());
    while let Some(base) = chars.next() {
        sign.clear();
        sign.push(base);
        let mut last = base;
        // What belongs to it, be it as a mark on it or as a part of it.
        let belongs =
            |last, c: char| !c.is_ascii() && (is_combining_mark(c) || compose(last, c).is_some());
        while let Some(c) = chars.next_if(|c| belongs(last, *c)) {
            sign.push(c);
            last = c;
        }
        let is_shown = is_visible(base) && is_nfc(&sign[..base.len_utf8()]);
        tell(base, is_shown);
        let mut may_follow = is_shown && base.is_alphanumeric() && is_nfc(&sign);
        for (before, c) in sign.chars().skip(1).enumerate() {
            may_follow &= before < MOST_MARKS && is_combining_mark(c) && !is_invisible(c);
            tell(c, may_follow);
        }
    }
}

/// Whether it is seen by itself.
fn is_visible(c: char) -> bool {
    match c {
        ' '..='~' => true,
        c if is_combining_mark(c) || is_invisible(c) => false,
        // As the standard library sees it, for `{:?}`: that has the categories of Unicode.
        c => c.escape_debug().len() == 1 && c.width() > Some(0),
    }
}

/// What neither has a width of 0, nor is in a category that says so; and invisible marks.
fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{34f}'
            | '\u{115f}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{2800}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{e0100}'..='\u{e01ef}'
    )
}

#[cfg(test)]
mod tests;
