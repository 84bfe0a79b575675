//! Autocomplete with a program's own folder of Lua scripts, which the script registry runs: the
//! recent contacts of a user, and the members of a guild.
//!
//! ```text
//! REDIS_URL=redis://... cargo run --example autocomplete -- join guild Zoë
//! REDIS_URL=redis://... cargo run --example autocomplete -- complete guild zo
//! ```
//!
//! This example replaces the autocompletion of "Redis in Action" (6.1), which fetched all recent
//! contacts to pick a few. For the members, that design put two markers into the sorted set, read
//! between the markers in a WATCH loop, and removed them. Each change of the members repeated the
//! loop, and a crash left markers behind. Only the letters a to z were supported. Here each
//! operation is one call, and the scripts are part of the program.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use redis_semaphore::ScriptRegistry;
use redis_semaphore::include_dir::{self, Dir, include_dir};
use redis_semaphore::redis::{AsyncConnectionConfig, Client, cmd};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

static SCRIPTS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/examples/autocomplete/scripts");

const RECENT: u32 = 100;
const SUGGESTIONS: u32 = 10;

/// Complete names of recent contacts and of members of a guild, in any script and case
#[derive(Parser)]
enum Task {
    /// Record that a user has just had contact with another user
    Remember { user: String, contact: String },
    /// Print the recent contacts of a user with this prefix, the most recent first
    Recall { user: String, prefix: String },
    /// Add a member to a guild
    Join { guild: String, member: String },
    /// Remove a member from a guild
    Leave { guild: String, member: String },
    /// Print up to ten members of a guild with this prefix, in alphabetical order
    Complete { guild: String, prefix: String },
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Task::parse()).await {
        Ok(names) => {
            names.iter().for_each(|name| println!("{name}"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("autocomplete: {error}");
            ExitCode::FAILURE
        }
    }
}

fn redis_url() -> Result<String> {
    std::env::var("REDIS_URL").map_err(|_| "REDIS_URL is not set: see scripts/with-redis".into())
}

/// Runs the task, and returns the lines to print.
async fn run(task: Task) -> Result<Vec<String>> {
    let registry = ScriptRegistry::from_dir(&SCRIPTS)?;
    // The default of redis-rs, 500 ms, is short for a busy machine.
    let timeout = Some(Duration::from_secs(5));
    let config = AsyncConnectionConfig::new().set_response_timeout(timeout);
    let client = Client::open(redis_url()?)?;
    let redis = &mut client.get_multiplexed_async_connection_with_config(&config).await?;
    Ok(match task {
        Task::Remember { user, contact } => {
            let arguments = [entry(&contact)?, RECENT.to_string()];
            let count: u32 = registry.run(redis, "remember", &[recent(&user)], &arguments).await?;
            vec![format!("{count} recent contacts")]
        }
        Task::Recall { user, prefix } => {
            registry.run(redis, "recall", &[recent(&user)], &[compared(&prefix)]).await?
        }
        Task::Join { guild, member } => {
            let mut add = cmd("ZADD");
            let is_new: bool =
                add.arg(members(&guild)).arg(0).arg(entry(&member)?).query_async(redis).await?;
            vec![if is_new { "joined" } else { "was already a member" }.to_owned()]
        }
        Task::Leave { guild, member } => {
            let mut remove = cmd("ZREM");
            let was_there: bool =
                remove.arg(members(&guild)).arg(entry(&member)?).query_async(redis).await?;
            vec![if was_there { "left" } else { "was not a member" }.to_owned()]
        }
        Task::Complete { guild, prefix } => {
            let arguments = [compared(&prefix), SUGGESTIONS.to_string()];
            registry.run(redis, "complete", &[members(&guild)], &arguments).await?
        }
    })
}

/// Returns an entry with the compared and the shown form of a name: see `scripts/lib/entry.lua`.
fn entry(name: &str) -> Result<String> {
    if name.is_empty() {
        return Err("a name must not be empty".into());
    }
    Ok(format!("{}\0{name}", compared(name)))
}

/// Converts a name to the form that is used for comparisons. Names that differ only in case have
/// the same form. Each character is converted separately, so that the form of a prefix is a prefix
/// of the form of the name. `str::to_lowercase` is not suitable, because it converts Σ differently
/// at the end of a word ("ΝΙΚΟΣ", "νικος").
///
/// "é" can be written as one character or as two, which look the same and are not equal. A program
/// for real names would also normalize the names here.
fn compared(name: &str) -> String {
    name.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

fn recent(user: &str) -> String {
    format!("recent:{user}")
}

fn members(guild: &str) -> String {
    format!("members:{guild}")
}
