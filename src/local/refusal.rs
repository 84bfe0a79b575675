//! Errors of scripts.

/// The error of a script. A call that returns an error has changed nothing.
#[derive(Debug, PartialEq)]
pub struct Refusal {
    pub code: &'static str,
    pub detail: String,
}

impl Refusal {
    /// The same text as in `lua/lib/arguments.lua`.
    pub(super) fn argument(index: usize, name: &str, wanted: &str, got: &str) -> Self {
        let shown = |byte: u8| if matches!(byte, b' '..=b'~') { byte.into() } else { '?' };
        let got: String = got.bytes().take(40).map(shown).collect();
        let detail = format!("ARGV[{index}] ({name}) must be {wanted}, got \"{got}\"");
        Self { code: "SEM_ARG", detail }
    }
}
