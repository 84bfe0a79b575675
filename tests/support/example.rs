use std::path::PathBuf;

/// The command-line tool, which `cargo test` builds as well.
pub fn tool() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let tool = test.parent().unwrap().with_file_name("redis-semaphore");
    assert!(tool.exists(), "{} is missing: cargo build -p redis-semaphore-cli", tool.display());
    tool
}

/// `cargo test` builds the examples, too, next to the tests.
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().with_file_name("examples").join(name);
    assert!(program.exists(), "{} is missing: cargo build --examples", program.display());
    program
}
