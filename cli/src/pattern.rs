//! Names that are looked for.

use std::convert::Infallible;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// For an option with one.
pub const HELP: &str =
    "Only names like this: * stands for any characters, ? for one, \\ makes the next one plain";

#[derive(Debug, Clone)]
pub struct Pattern(String);

impl Pattern {
    pub fn fits(&self, name: &str) -> bool {
        is_like(name, &self.0)
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

/// Whether a name is as a pattern with * and ? says.
fn is_like(name: &str, pattern: &str) -> bool {
    let (mut name, mut pattern) = (name.chars(), pattern.chars());
    // What was behind the last star, and what of the name it has not taken yet. What an earlier one
    // takes need not be tried again.
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
    use super::is_like;

    #[test]
    fn patterns_have_stars_and_question_marks() {
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
    fn many_stars_take_no_longer() {
        let name = "a".repeat(10_000);
        assert!(!is_like(&name, &("*a".repeat(20) + "*b")));
        assert!(is_like(&name, &"*a".repeat(20)));
    }
}
