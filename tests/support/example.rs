use std::path::PathBuf;

/// Returns the path of an example. `cargo test` builds the examples next to the tests.
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().with_file_name("examples").join(name);
    assert!(program.exists(), "{} is missing: cargo build --examples", program.display());
    program
}
