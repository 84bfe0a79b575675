//! Writes the scripts with their includes to a folder, for tools that read Lua, and for clients in
//! other languages that need complete scripts.
//!
//! `cargo run --example assemble -- target/lua`

use std::path::PathBuf;

use clap::Parser;
use redis_semaphore::ScriptRegistry;

/// Write the scripts with their includes to a folder, and print the SHA-1 of each
#[derive(Parser)]
#[command(name = "assemble")]
struct Options {
    /// Folder for the scripts; created if it does not exist
    folder: PathBuf,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Options { folder } = Options::parse();
    std::fs::create_dir_all(&folder)?;
    for script in ScriptRegistry::embedded().scripts() {
        std::fs::write(folder.join(script.name()).with_extension("lua"), script.source())?;
        println!("{}  {}", script.sha1(), script.name());
    }
    Ok(())
}
