//! Patterns of names, as `ls` takes them.

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
