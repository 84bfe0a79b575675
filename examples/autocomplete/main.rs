//! Autocomplete, with a folder of Lua scripts of one's own that the script registry runs: the
//! recent contacts of a user, and the members of a guild.
//!
//! ```text
//! REDIS_URL=redis://... cargo run --example autocomplete -- join guild Zoë
//! REDIS_URL=redis://... cargo run --example autocomplete -- complete guild zo
//! ```
//!
//! It replaces the autocompletion of "Redis in Action" (6.1). That fetched all recent contacts to
//! pick a few. For the members it put two markers into the sorted set, read between them in a WATCH
//! loop and took them out: again and again while members came and went, with markers left behind by
//! a crash, and for the letters a to z only. Here each is one call, and the scripts are part of the
//! program.

use std::process::ExitCode;

use clap::Parser;
use redis_semaphore::ScriptRegistry;
use redis_semaphore::include_dir::{self, Dir, include_dir};
use redis_semaphore::redis::{Client, cmd};

/// Whatever fails here ends up as a message for a person.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

static SCRIPTS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/examples/autocomplete/scripts");

const RECENT: u32 = 100;
const SUGGESTIONS: u32 = 10;

/// Completes names of recent contacts and of the members of a guild, in any script, whatever their
/// case
#[derive(Parser)]
enum Task {
    /// Notes that a user has just been in contact with somebody
    Remember { user: String, contact: String },
    /// The recent contacts of a user that begin so, the most recent first
    Recall { user: String, prefix: String },
    /// Makes somebody a member of a guild
    Join { guild: String, member: String },
    /// Ends a membership
    Leave { guild: String, member: String },
    /// Up to ten members of a guild whose names begin so, in alphabetical order
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

/// Answers what is to be printed.
async fn run(task: Task) -> Result<Vec<String>> {
    let registry = ScriptRegistry::from_dir(&SCRIPTS)?;
    let mut redis = Client::open(redis_url()?)?.get_multiplexed_async_connection().await?;
    let redis = &mut redis;
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
            vec![if is_new { "joined" } else { "was a member already" }.to_owned()]
        }
        Task::Leave { guild, member } => {
            let mut remove = cmd("ZREM");
            let was_there: bool =
                remove.arg(members(&guild)).arg(entry(&member)?).query_async(redis).await?;
            vec![if was_there { "left" } else { "was no member" }.to_owned()]
        }
        Task::Complete { guild, prefix } => {
            let arguments = [compared(&prefix), SUGGESTIONS.to_string()];
            registry.run(redis, "complete", &[members(&guild)], &arguments).await?
        }
    })
}

/// What the scripts compare and show: see `scripts/lib/entry.lua`.
fn entry(name: &str) -> Result<String> {
    if name.is_empty() {
        return Err("a name must not be empty".into());
    }
    Ok(format!("{}\0{name}", compared(name)))
}

/// Without regard to case, and character by character: what comes of a prefix then is a prefix of
/// what comes of the name. `str::to_lowercase` looks at the end of a word ("ΝΙΚΟΣ", "νικος").
///
/// "é" can be written as one character or as two, which look the same and compare as different: a
/// program for real names would normalize them here, too.
fn compared(name: &str) -> String {
    name.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

fn recent(user: &str) -> String {
    format!("recent:{user}")
}

fn members(guild: &str) -> String {
    format!("members:{guild}")
}
