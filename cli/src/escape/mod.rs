//! Escapes text that a terminal must not get. After that, text that a server or another client
//! wrote can neither steer the terminal nor hide. Different letters of similar shape are not
//! escaped.
//!
//! `output.rs` escapes what it prints, except in `write` and `whisper`. `top/text.rs` escapes what
//! is drawn. An escape looks like `\u{202e}`. These characters are escaped: control and format
//! characters, separators other than the space, unassigned characters, characters for private use,
//! and invisible characters. A character is also escaped if it is not in Unicode's normalization
//! form C, because it looks the same as its normalized form.

use std::fmt::Write;
use std::io;

use serde::Serialize;
use serde_json::Serializer;
use unicode_normalization::char::{compose, decompose_canonical, is_combining_mark};
use unicode_normalization::is_nfc;
use unicode_width::UnicodeWidthChar;

/// The largest number of combining marks that are printed on one character. More marks would
/// overlap other lines.
const MOST_MARKS: usize = 4;

/// Escapes text of one or more lines, with parts that others wrote.
pub fn text(text: &str) -> String {
    escaped(text, |c| c == '\n')
}

/// Escapes text that must be one line.
pub fn line(text: &str) -> String {
    escaped(text, |_| false)
}

/// Escapes a name or a similar value, so that no other value has the same output. A backslash is
/// escaped if it would begin an escape. A space is escaped at the beginning, at the end, and after
/// another space. The result may be used as a part of a line.
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

/// Parses a typed name. Rejects a name that was copied with its escapes.
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
        true => Err(format!("it contains an escaped character: in Bash, write $'{in_bash}'")),
        false => Ok(text.to_owned()),
    }
}

/// Returns JSON that is safe to print. A parser of the JSON gets exactly the same value.
pub fn json(value: &impl Serialize) -> String {
    let mut json = Vec::new();
    let written = value.serialize(&mut Serializer::with_formatter(&mut json, Escaping));
    written.expect("writing to memory cannot fail, and its keys are text");
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
        false => write!(shown, "\\u{{{:x}}}", u32::from(c)).expect("writing to memory cannot fail"),
    }
}

struct Escaping;

impl serde_json::ser::Formatter for Escaping {
    /// Escapes characters that JSON itself does not escape.
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
                    write!(shown, "\\u{unit:04x}").expect("writing to memory cannot fail");
                }
            }
        });
        writer.write_all(shown.as_bytes())
    }
}

/// Returns the first character of the character's decomposition.
fn first_part(c: char) -> char {
    let mut first = None;
    decompose_canonical(c, |part| _ = first.get_or_insert(part));
    first.unwrap_or(c)
}

/// Reports for each character whether it can be shown.
fn each(text: &str, mut emit: impl FnMut(char, bool)) {
    let (mut chars, mut sign) = (text.chars().peekable(), String::new());
    while let Some(base) = chars.next() {
        sign.clear();
        sign.push(base);
        let mut last = base;
        // Whether a character is a mark on the previous character, or combines with the previous
        // character.
        let belongs = |last, c: char| {
            !c.is_ascii() && (is_combining_mark(c) || compose(last, first_part(c)).is_some())
        };
        while let Some(c) = chars.next_if(|c| belongs(last, *c)) {
            sign.push(c);
            last = c;
        }
        let is_shown = is_visible(base) && is_nfc(&sign[..base.len_utf8()]);
        emit(base, is_shown);
        let mut may_follow = is_shown && base.is_alphanumeric() && is_nfc(&sign);
        for (before, c) in sign.chars().skip(1).enumerate() {
            may_follow &= before < MOST_MARKS && is_combining_mark(c) && !is_invisible(c);
            emit(c, may_follow);
        }
    }
}

/// Returns whether the character is visible by itself.
fn is_visible(c: char) -> bool {
    match c {
        ' '..='~' => true,
        c if is_combining_mark(c) || is_invisible(c) => false,
        // `escape_debug` selects characters by their Unicode category.
        c => c.escape_debug().len() == 1 && c.width() > Some(0),
    }
}

/// Returns whether a character is invisible, although neither its width nor its category says so.
/// Invisible marks are included.
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
