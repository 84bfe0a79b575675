//! Writes the scripts, with their includes put in, to a folder: for tools that read Lua, and for
//! clients in other languages that would rather have them whole.
//!
//! `cargo run --example assemble -- target/lua`

use std::path::PathBuf;

use redis_semaphore::ScriptRegistry;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder =
        std::env::args().nth(1).ok_or("which folder? cargo run --example assemble -- DIR")?;
    let folder = PathBuf::from(folder);
    std::fs::create_dir_all(&folder)?;
    for script in ScriptRegistry::embedded().scripts() {
        std::fs::write(folder.join(script.name()).with_extension("lua"), script.source())?;
        println!("{}  {}", script.sha1(), script.name());
    }
    Ok(())
}
