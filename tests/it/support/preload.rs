//! Libraries in C that are preloaded into processes under test.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds one, and answers where it is. Two tests may do so at the same time.
pub fn build_library(source: &str) -> PathBuf {
    // Its path is one from the root, and the packages that build it are below that.
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let source = folders.map(|folder| folder.join(source)).find(|source| source.exists());
    let source = source.expect("the package has it");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let library = folder.join(source.file_stem().unwrap()).with_extension("so");
    let unfinished = folder.join(uuid::Uuid::new_v4().to_string());
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&unfinished)
        .arg(&source)
        .arg("-ldl")
        .status()
        .expect("cc is needed: it comes with whatever links Rust programs");
    assert!(built.success(), "cc could not build {}", source.display());
    std::fs::rename(&unfinished, &library).unwrap();
    library
}
