//! C libraries that are preloaded into processes under test.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the library of this source, whose path is relative to the root. Returns the path of the
/// library, which is beside the running program. Two tests may build the library at the same time.
pub fn build_library(source: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(source);
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().unwrap();
    let library = folder.join(source.file_stem().unwrap()).with_extension("so");
    let unfinished = folder.join(uuid::Uuid::new_v4().to_string());
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&unfinished)
        .arg(&source)
        .arg("-ldl")
        .status()
        .expect("cc is needed: Rust programs are linked with it");
    assert!(built.success(), "cc could not build {}", source.display());
    std::fs::rename(&unfinished, &library).unwrap();
    library
}
