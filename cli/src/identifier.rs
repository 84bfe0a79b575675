//! Options whose value becomes a part of an ID: labels and groups.

/// Returns whether a part of an ID may contain this character.
pub fn is_fit(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-')
}

/// Returns a parser for identifiers up to this length.
pub fn identifier(longest: usize) -> impl Fn(&str) -> Result<String, String> + Clone {
    move |text| match (1..=longest).contains(&text.len()) && text.chars().all(is_fit) {
        true => Ok(text.to_owned()),
        false => Err(format!("must be 1 to {longest} of A-Z, a-z, 0-9, '.', '_' and '-'")),
    }
}
