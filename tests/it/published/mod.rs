//! Files for other languages. `lua/manifest.json`, `lua/functions.lua` and the tables of
//! `docs/protocol.md` are generated from the scripts. The vectors contain calls and their replies.

mod expectation;
mod functions;
mod manifest;
mod tables;
mod vectors;

use test_support::head::folder;

/// Checks that a generated file is up to date. With `scripts/generate`, writes it instead.
fn assert_is_published(file: &str, text: &str) {
    let path = folder().join(file);
    if std::env::var_os("WRITE_PUBLISHED").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = published.lines().zip(text.lines()).position(|(is, should)| is != should);
    let is_up_to_date = published == text;
    assert!(
        is_up_to_date,
        "{} is out of date (from line {differs:?} on): run scripts/generate",
        path.display()
    );
}
