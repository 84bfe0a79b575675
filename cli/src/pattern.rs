//! Patterns of names.

use std::convert::Infallible;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use unicode_normalization::UnicodeNormalization;

use crate::escape::{argument, value};

/// The help of an option that takes a pattern.
pub const HELP: &str =
    "Only names that match: * matches any characters, ? any one, \\ escapes the next one";

#[derive(Debug, Clone)]
pub struct Pattern(String);

impl Pattern {
    pub fn fits(&self, name: &str) -> bool {
        is_like(name, &self.0)
    }

    /// Suggests another pattern if this pattern, which matches none of the names, is probably a
    /// mistake. Without names, checks only the text of the pattern.
    pub fn advice(&self, prefix: &str, names: &[String]) -> Option<String> {
        let Self(pattern) = self;
        if let Err(escaped) = argument(pattern) {
            return Some(escaped);
        }
        if pattern.contains(['{', '}']) {
            let (start, rest) = pattern.split_once('{').unwrap_or(("", pattern));
            let (inner, end) = rest.split_once('}').unwrap_or((rest, ""));
            // Users may have copied a key, or the braced part of a key.
            let is_key = (start.is_empty() || start.ends_with(':'))
                && (end.trim_matches('}').is_empty() || end.starts_with(':'));
            let write = || format!(": write {:?}", inner.trim_matches('{'));
            let write = is_key.then(write).unwrap_or_default();
            return Some(format!("names contain no braces{write}"));
        }
        let without_prefix = pattern.strip_prefix(prefix).and_then(|rest| rest.strip_prefix(':'));
        if let Some(rest) = without_prefix {
            return Some(format!("the prefix {prefix:?} is not part of a name: write {rest:?}"));
        }
        let first_like = |pattern: &str, form: fn(&str) -> String| {
            names.iter().find(|name| is_like(&form(name), &form(pattern)))
        };
        let is_there = |name: &String| format!("there is \"{}\"", value(name));
        if let Some(name) = first_like(pattern, |text| text.nfc().collect()) {
            return Some(is_there(name) + ", which only looks the same");
        }
        if let Some(name) = first_like(pattern, str::to_lowercase) {
            return Some(is_there(name) + ": upper and lower case differ");
        }
        if pattern.is_empty() {
            return Some("a name is never empty: write \"*\" for all names".to_owned());
        }
        let part = format!("*{pattern}*");
        let name = first_like(&part, str::to_owned)?;
        Some(format!(
            "{}, but the pattern must match the whole name: write {part:?}",
            is_there(name)
        ))
    }
}

impl FromStr for Pattern {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl Display for Pattern {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns whether a name matches a pattern: see `HELP`.
fn is_like(name: &str, pattern: &str) -> bool {
    let (mut name, mut pattern) = (name.chars(), pattern.chars());
    // The pattern after the last star, and the part of the name that the star has not matched yet.
    // After a mismatch, only the last star is tried again, with one more character.
    let mut star = None;
    loop {
        let mut rest = pattern.clone();
        let wanted = match rest.next() {
            Some('*') => {
                pattern = rest;
                star = Some((pattern.clone(), name.clone()));
                continue;
            }
            None if name.as_str().is_empty() => return true,
            Some('?') => Some(None),
            Some('\\') => Some(rest.next().or(Some('\\'))),
            plain => plain.map(Some),
        };
        let Some(found) = name.next() else { return false };
        if wanted.is_some_and(|wanted| wanted.is_none_or(|wanted| wanted == found)) {
            pattern = rest;
        } else if let Some((behind, left)) = &mut star {
            left.next();
            (pattern, name) = (behind.clone(), left.clone());
        } else {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_with_stars_question_marks_and_escapes() {
        for (name, pattern) in [
            ("", "*"),
            ("jobs", "jobs"),
            ("jobs", "j*"),
            ("jobs", "*b?"),
            ("jobs", "**s"),
            ("äö", "?ö"),
            ("a*b", "a\\*b"),
            ("a\\", "a\\\\"),
            ("[x]", "[x]"),
            ("aab", "*ab"),
            ("axxbxb", "a*b*b"),
            ("", "**"),
        ] {
            assert!(is_like(name, pattern), "{name} {pattern}");
        }
        for (name, pattern) in
            [("jobs", "job"), ("jobs", "*j"), ("jobs", "????s"), ("axb", "a\\*b"), ("", "?")]
        {
            assert!(!is_like(name, pattern), "{name} {pattern}");
        }
    }

    #[test]
    fn an_unmatched_pattern_gets_advice_for_common_mistakes() {
        let names = ["Mailer", "caf\u{e9}"].map(str::to_owned);
        for (pattern, advice) in [
            ("", Some("a name is never empty: write \"*\" for all names")),
            ("{*", Some("names contain no braces: write \"*\"")),
            ("{mailer}", Some("names contain no braces: write \"mailer\"")),
            ("sem:{mailer}:state", Some("names contain no braces: write \"mailer\"")),
            ("mail*}", Some("names contain no braces: write \"mail*\"")),
            ("deploy-{prod}", Some("names contain no braces")),
            ("{prod}-deploy", Some("names contain no braces")),
            ("sem:mailer", Some("the prefix \"sem\" is not part of a name: write \"mailer\"")),
            ("mail*", Some("there is \"Mailer\": upper and lower case differ")),
            ("cafe\u{301}", Some("there is \"caf\u{e9}\", which only looks the same")),
            (
                "ail",
                Some(
                    "there is \"Mailer\", but the pattern must match the whole name: write \
                     \"*ail*\"",
                ),
            ),
            ("jobs", None),
        ] {
            let pattern: Pattern = pattern.parse().unwrap();
            assert_eq!(pattern.advice("sem", &names).as_deref(), advice, "{pattern}");
        }
    }

    #[test]
    fn matching_a_pattern_with_many_stars_is_not_exponential() {
        let name = "a".repeat(10_000);
        assert!(!is_like(&name, &("*a".repeat(20) + "*b")));
        assert!(is_like(&name, &"*a".repeat(20)));
    }
}
