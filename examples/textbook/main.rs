//! Four problems out of textbooks on operating systems, each with processes that share nothing but
//! Redis.
//!
//! ```text
//! scripts/with-redis cargo run --example textbook -- plate
//! ```
//!
//! They replace the record semaphore: a number, and a list of those that sleep until V wakes one.
//! It lives in the memory of one machine; a process that dies between P and V takes its permit
//! along; and nothing shows who waits for what.
//!
//! - `plate`: it holds one fruit. Father puts apples on it, mother oranges; the daughter takes
//!   nothing but apples, the son nothing but oranges.
//! - `buffer`: producers and consumers with a bounded buffer between them.
//! - `readers`: many may read at once, but a writer is alone.
//! - `philosophers`: they dine, each with the forks of both sides, and none starves.

mod buffer;
#[path = "../shared/crew.rs"]
mod crew;
mod philosophers;
mod plate;
mod readers;
#[path = "../shared/start.rs"]
mod start;
mod table;

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use start::Result;
use table::Table;

/// How often each process does what it does.
const ROUNDS: u32 = 10;

#[derive(Clone, Copy, ValueEnum)]
enum Problem {
    /// A plate for one fruit
    Plate,
    /// Producers and consumers with a bounded buffer
    Buffer,
    /// Readers and writers
    Readers,
    /// Dining philosophers
    Philosophers,
}

/// Has several processes solve a problem, and prints what each of them does
///
/// The story stays in Redis as the list NAME:history.
#[derive(Parser)]
struct Options {
    problem: Problem,
    #[arg(default_value = "textbook")]
    name: String,
    /// How the program starts itself again, as one of the processes
    #[arg(hide = true)]
    role: Option<String>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Options::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("textbook: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(Options { problem, name, role }: Options) -> Result<()> {
    let mut table = Table::open(&name).await?;
    if let Some(role) = role {
        crew::end_with_parent();
        return match problem {
            Problem::Plate => plate::play(&role, &mut table).await,
            Problem::Buffer => buffer::play(&role, &mut table).await,
            Problem::Readers => readers::play(&role, &mut table).await,
            Problem::Philosophers => philosophers::play(&role, &mut table).await,
        };
    }
    let roles = match problem {
        Problem::Plate => &plate::ROLES[..],
        Problem::Buffer => &buffer::ROLES,
        Problem::Readers => &readers::ROLES,
        Problem::Philosophers => &philosophers::ROLES,
    };
    // An earlier run may have been interrupted.
    table.clear().await?;
    let problem = problem.to_possible_value().expect("none is hidden").get_name().to_owned();
    let processes = roles.iter().map(|role| vec![problem.clone(), name.clone(), role.to_string()]);
    crew::run(processes, |line| println!("{line}")).await?;
    table.clear_signals().await
}
