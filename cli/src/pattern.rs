//! Patterns for names of semaphores.

/// Whether a name is as a pattern with * and ? says.
pub fn is_like(name: &str, pattern: &str) -> bool {
    let mut rest = pattern.chars();
    match rest.next() {
        None => name.is_empty(),
        Some('*') => {
            let rest = rest.as_str().trim_start_matches('*');
            let ends = name.char_indices().map(|(end, _)| end).chain([name.len()]);
            ends.into_iter().any(|end| is_like(&name[end..], rest))
        }
        Some(first) => {
            let wanted = match first {
                '?' => None,
                '\\' => rest.next().or(Some('\\')),
                plain => Some(plain),
            };
            let mut name = name.chars();
            let is_same = name.next().is_some_and(|c| wanted.is_none_or(|wanted| c == wanted));
            is_same && is_like(name.as_str(), rest.as_str())
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
        ] {
            assert!(is_like(name, pattern), "{name} {pattern}");
        }
        for (name, pattern) in
            [("jobs", "job"), ("jobs", "*j"), ("jobs", "????s"), ("axb", "a\\*b"), ("", "?")]
        {
            assert!(!is_like(name, pattern), "{name} {pattern}");
        }
    }
}
