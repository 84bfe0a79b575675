//! What is published beside the scripts for other languages, and made from them:
//! `lua/manifest.json` and `lua/functions.lua`. And the vectors, which say how the scripts must
//! answer.

mod expectation;
mod functions;
mod manifest;
mod vectors;

use test_support::head::folder;

/// That a file is what the scripts make of it. `scripts/generate` has it written instead.
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
