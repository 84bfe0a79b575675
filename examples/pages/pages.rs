//! A batch job with paging: a parent counts the pages of a table, and starts a process for each
//! page, of which only so many may query the database at once.
//!
//! ```text
//! scripts/with-redis cargo run --release --example pages
//! ```
//!
//! It does two such jobs with an older design, and two with this crate. In the older one
//! (`old.lua`, `old.rs`) a script refuses or grants, and whoever is refused pops from a blocking
//! list to which each release pushes. A release for which nobody waits leaves its wake-up in the
//! list, so the next job lets in too many; a process that dies between its pop and its release
//! takes a place along; and every waiter needs a connection of its own. See for yourself what the
//! second job does.

#[path = "../shared/crew.rs"]
mod crew;
mod database;
mod here;
mod old;
mod report;
#[path = "../shared/start.rs"]
mod start;
#[path = "../load/sweep.rs"]
mod sweep;

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use database::Database;
use report::Report;
use start::Result;

#[derive(Clone, Copy, ValueEnum)]
enum Design {
    Old,
    Here,
}

/// Does a batch job with an older design and with this one, and prints how long the pages waited
#[derive(Parser)]
struct Options {
    /// How many pages may be queried at once
    #[arg(default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    #[arg(default_value = "pages")]
    name: String,
    /// How the program starts itself again, once for each page
    #[arg(hide = true, requires_all = ["database", "page"])]
    design: Option<Design>,
    #[arg(hide = true)]
    database: Option<String>,
    #[arg(hide = true)]
    page: Option<u32>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Options::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pages: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(Options { limit, name, design, database, page }: Options) -> Result<()> {
    if let (Some(design), Some(path), Some(page)) = (design, database, page) {
        crew::end_with_parent();
        let database = Database::at(path);
        let report = match design {
            Design::Old => old::query(&database, page, &name, limit).await?,
            Design::Here => here::query(&database, page, &name, limit).await?,
        };
        println!("{}", serde_json::to_string(&report)?);
        return Ok(());
    }
    old::clear(&name).await?;
    let database = Database::create()?;
    for (design, title) in [("old", "blocking list"), ("here", "redis-semaphore")] {
        for job in ["first", "second"] {
            let reports = query_all(&database, design, &name, limit).await?;
            println!("{title}, {job} job: {}", report::summary(&reports));
        }
    }
    println!("blocking list: {} wake-ups for nobody are left over", old::left_over(&name).await?);
    Ok(())
}

async fn query_all(
    database: &Database,
    design: &str,
    name: &str,
    limit: u32,
) -> Result<Vec<Report>> {
    let children = (0..database.pages()?).map(|page| {
        let (limit, page) = (limit.to_string(), page.to_string());
        vec![limit, name.to_owned(), design.to_owned(), database.path().to_owned(), page]
    });
    let mut lines = Vec::new();
    crew::run(children, |line| lines.push(line.to_owned())).await?;
    lines.iter().map(|line| Ok(serde_json::from_str(line)?)).collect()
}
