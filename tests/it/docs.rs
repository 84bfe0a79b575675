//! What the documentation says, where a test can tell.

use std::fs;
use std::path::Path;

/// Every text of a table in `docs/operations.md` is one that the crate logs.
#[test]
fn the_log_says_what_operations_tells() {
    let page = include_str!("../../docs/operations.md");
    let (_, section) = page.split_once("## What the log says").unwrap();
    let texts: Vec<&str> = section
        .lines()
        .filter(|line| line.starts_with("| warn |") || line.starts_with("| info |"))
        .map(|line| line.split('|').nth(2).unwrap().trim())
        .collect();
    assert!(texts.len() > 5, "{texts:?}");
    let source = read_all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    for text in texts {
        assert!(source.contains(&format!("\"{text}\"")), "nothing logs {text:?}");
    }
}

fn read_all(folder: &Path) -> String {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: std::path::PathBuf| match path.is_dir() {
        true => read_all(&path),
        false => fs::read_to_string(path).unwrap(),
    };
    entries.map(read).collect()
}
